// kernels [--threads N] [--cpu-time] [--only WORD] [--target NAME] [--json]: each CPU kernel beside the limit that it can
// meet at best, measured in the same run. --cpu-time counts the seconds of our one thread, for a machine with other work.
//
//   linear      W [N, K] times M rows: the larger of bytes of W / read bandwidth and operations / multiply-add rate
//   pack        stored rows into panels: bytes read and written / copy bandwidth
//   attention   the last M tokens (one, if none is named) of a context of C, all heads: the larger of bytes of K and V / read
//               bandwidth and operations / multiply-add rate
//
// Shapes are those of the 1.1B Llama. Weights of several copies, so that no cache holds them from one call to the next.
#include <sys/mman.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "base/bytes.h"
#include "base/json.h"
#include "base/rng.h"
#include "bench/limits.h"
#include "bench/target.h"
#include "device/thread_pool.h"
#include "kernels/kernels.h"
#include "kernels/ops.h"
#include "kernels/pack.h"
#include "nlohmann/json.hpp"

namespace shoal {
namespace {

constexpr uint64_t kBeyondCaches = 256u << 20;
constexpr int kRuns = 5;

struct Flags {
  int threads = 2;
  Seconds seconds = Seconds::kWall;
  std::string only, target;
  bool json = false;
};

struct Result {
  std::string what;
  double seconds;
  double limit_seconds;  // what the machine could do it in
  std::string rate;      // for people
};

// Memory of random bytes whose 16-bit words are tame as f16 and bf16.
struct Bytes {
  explicit Bytes(uint64_t count) : size(round_up(count, uint64_t{2} << 20)) {
    data = static_cast<std::byte*>(mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    if (data == MAP_FAILED) std::abort();
    madvise(data, size, MADV_HUGEPAGE);
    Rng rng(count);
    for (uint64_t at = 0; at < size; at += 8) {
      const uint64_t bits = rng.bits() & 0x3b3b3b3b3b3b3b3bull;
      std::memcpy(data + at, &bits, 8);
    }
  }
  ~Bytes() { munmap(data, size); }
  Bytes(const Bytes&) = delete;
  uint64_t size;
  std::byte* data;
};

double best_seconds(Seconds which, const std::function<void(int run)>& body) {
  double best = 1e30;
  for (int run = 0; run < kRuns; ++run) {
    const double begin = seconds_now(which);
    body(run);
    best = std::min(best, seconds_now(which) - begin);
  }
  return best;
}

std::string text(const char* format, double value) {
  char buffer[64];
  std::snprintf(buffer, sizeof buffer, format, value);
  return buffer;
}

struct Heads {
  uint32_t kv, group, dim;  // KV heads, query heads of each, elements of a head
  uint32_t latent = 0;      // values are so many first elements of the keys; 0: there are values
  uint32_t values() const { return latent == 0 ? dim : latent; }
};

// Attention of the last rows of a context, split between threads as a step does it: by KV heads and rows; one row by segments of the
// context as well.
class AttentionRun {
 public:
  AttentionRun(KvFormat format, uint32_t context, uint32_t rows, const Heads& heads)
      : format_(format), context_(context), rows_(rows), heads_(heads), head_bytes_(kv_head_bytes(format, heads.dim)),
        block_bytes_((heads.latent == 0 ? 2 : 1) * heads.kv * head_bytes_), copies_(std::max<uint64_t>(1, kBeyondCaches / kv_bytes())),
        width_(uint64_t{heads.kv} * heads.group * heads.dim), rows_each_(div_up(rows, div_up(uint64_t{rows} * heads.group, kPieceQueries))),
        pieces_(static_cast<uint32_t>(div_up(rows, rows_each_))),
        segments_(rows == 1 ? (context - 1) / (kKvTokens * kSegmentBlocks) + 1 : 1),
        states_(uint64_t{heads.group} * attention_state_floats(heads.values())), kv_(kv_bytes() * copies_), q_(rows * width_, 0.01f),
        out_(q_.size() / heads.dim * heads.values()), partial_(heads.kv * segments_ * states_) {}

  uint64_t kv_bytes() const { return block_bytes_ * (context_ / kKvTokens); }

  void run(const Kernels& kernels, ThreadPool& pool, int run) {
    blocks_.clear();
    for (uint32_t b = 0; b < context_ / kKvTokens; ++b) blocks_.push_back(kv_.data + run % copies_ * kv_bytes() + b * block_bytes_);
    if (rows_ > 1) {
      pool.parallel_for(uint64_t{pieces_} * heads_.kv, [&](size_t task, int) {
        kernels.attention(call_of(static_cast<uint32_t>(task % heads_.kv), pieces_ - 1 - static_cast<uint32_t>(task / heads_.kv)));
      });
      return;
    }
    pool.parallel_for(uint64_t{heads_.kv} * segments_, [&](size_t task, int) {
      const uint32_t segment = static_cast<uint32_t>(task / heads_.kv), head = static_cast<uint32_t>(task % heads_.kv);
      kernels.attention(part_of(head, segment, segment + 1));
    });
    pool.parallel_for(heads_.kv, [&](size_t head, int) { kernels.merge_attention(part_of(static_cast<uint32_t>(head), 0, segments_)); });
  }

 private:
  static constexpr uint64_t kPieceQueries = 96;

  AttentionCall call_of(uint32_t head, uint32_t piece) {
    const uint32_t row = piece * rows_each_;
    const uint64_t query = uint64_t{row} * heads_.kv * heads_.group + uint64_t{head} * heads_.group;
    AttentionCall call;
    call.q = q_.data() + query * heads_.dim;
    call.out = out_.data() + query * heads_.values();
    call.q_stride = width_;
    call.out_stride = width_ / heads_.dim * heads_.values();
    call.compressed = heads_.latent != 0;
    call.blocks = blocks_.data();
    call.key_offset = head * head_bytes_;
    call.value_offset = (heads_.kv + head) * head_bytes_;
    call.format = format_;
    call.head_dim = heads_.dim;
    call.value_dim = heads_.values();
    call.group = heads_.group;
    call.rows = piece + 1 == pieces_ ? rows_ - row : rows_each_;
    call.position = context_ - rows_ + row;
    call.scale = 0.125f;
    return call;
  }
  AttentionCall part_of(uint32_t head, uint32_t begin, uint32_t end) {
    AttentionCall call = call_of(head, 0);
    call.segment_begin = begin;
    call.segment_end = end;
    call.partial = partial_.data() + (uint64_t{head} * segments_ + begin) * states_;
    return call;
  }

  const KvFormat format_;
  const uint32_t context_, rows_;
  const Heads heads_;
  const uint64_t head_bytes_, block_bytes_, copies_, width_;
  const uint32_t rows_each_, pieces_, segments_;
  const uint64_t states_;  // floats of a segment of one KV head
  const Bytes kv_;
  std::vector<float> q_, out_, partial_;
  std::vector<std::byte*> blocks_;
};

// Recurrences of heads, a task each, from one state into another, as a step has them.
class ScanRun {
 public:
  static constexpr uint32_t kHeads = 32, kKeys = 128, kValues = 64;
  static constexpr uint64_t kStateBytes = kKeys * kValues * sizeof(float);

  ScanRun(bool delta, uint32_t sequences, uint32_t tokens)
      : delta_(delta), sequences_(sequences), tokens_(tokens), states_(std::max(kBeyondCaches, 4 * kStateBytes * kHeads * sequences)),
        numbers_(uint64_t{tokens} * sequences * kHeads * kKeys, 0.01f), out_(uint64_t{tokens} * sequences * kHeads * kValues) {}

  void run(const Kernels& kernels, ThreadPool& pool, int run) {
    const uint64_t heads = uint64_t{kHeads} * sequences_, pairs = states_.size / (2 * kStateBytes * heads);
    pool.parallel_for(heads, [&](size_t head, int) {
      std::byte* const pair = states_.data + 2 * (run % pairs * heads + head) * kStateBytes;
      const float* const row = numbers_.data() + head / kHeads * tokens_ * kHeads * kKeys + head % kHeads * kKeys;
      ScanCall call{.from = reinterpret_cast<const float*>(pair), .state = reinterpret_cast<float*>(pair + kStateBytes), .width = kValues, .q = row, .k = row,
                    .stride = kHeads * kKeys, .v = row, .v_stride = kHeads * kKeys, .decay = row, .decay_stride = kHeads * kKeys};
      if (delta_) call.beta = row, call.beta_stride = kHeads * kKeys;
      call.out = out_.data() + head * tokens_ * kValues;
      call.out_stride = kValues;
      call.key_dim = kKeys;
      call.values = kValues;
      call.tokens = tokens_;
      kernels.scan(call);
    });
  }

 private:
  const bool delta_;
  const uint32_t sequences_, tokens_;
  const Bytes states_;
  std::vector<float> numbers_, out_;
};

class Bench {
 public:
  Bench(const Flags& flags, const Limits& limits) : flags_(flags), pool_(flags.threads), limits_(limits), kernels_(best_kernels()) {}

  void linear(WeightFormat format, uint32_t n, uint32_t k, uint32_t rows) {
    const std::string what = absl::StrCat("linear ", weight_format_name(format), " ", n, "x", k, " M=", rows);
    if (!wanted(what)) return;
    const uint64_t bytes = packed_bytes(format, n, k);
    const uint64_t copies = std::max<uint64_t>(1, kBeyondCaches / bytes);
    const Bytes weights(bytes * copies);
    std::vector<float> x(uint64_t{rows} * k), out(uint64_t{rows} * n);
    Rng rng(1);
    for (float& v : x) v = static_cast<float>(rng.uniform() - 0.5);
    std::vector<QuantBlock> scratch(rows * quant_row_stride(k));
    const double seconds = best_seconds(flags_.seconds, [&](int run) {
      const PackedMatrix matrix{format, n, k, weights.data + run % copies * bytes, nullptr, 0};
      const LinearOutput output{matrix, out.data()};
      shoal::linear(kernels_, pool_, {x.data(), rows, scratch.data()}, {&output, 1});
    });
    const double operations = 2.0 * rows * n * k;
    const double compute = operations / (is_quantized(format) ? limits_.int8_ops_per_s : limits_.f32_ops_per_s);
    const double memory = static_cast<double>(bytes) / limits_.read_bytes_per_s;
    add(what, seconds, std::max(compute, memory),
        compute > memory ? text("%.0f Gop/s", operations / seconds * 1e-9) : text("%.1f GB/s", static_cast<double>(bytes) / seconds * 1e-9));
  }

  void pack(DType type, WeightFormat format, uint32_t n, uint32_t k) {
    const std::string what = absl::StrCat("pack ", weight_format_name(format), " ", n, "x", k);
    if (!wanted(what)) return;
    const uint64_t row_bytes = *dtype_bytes(type, k), packed = packed_bytes(format, n, k);
    const uint64_t copies = std::max<uint64_t>(1, kBeyondCaches / packed);
    const Bytes stored(row_bytes * n * copies), target(packed * copies);
    const double seconds = best_seconds(flags_.seconds, [&](int run) {
      const std::byte* from = stored.data + run % copies * row_bytes * n;
      std::byte* to = target.data + run % copies * packed;
      pool_.parallel_for(n / kPanelRows, [&](size_t panel, int) {
        const std::byte* rows[kPanelRows];
        for (size_t i = 0; i < kPanelRows; ++i) rows[i] = from + (panel * kPanelRows + i) * row_bytes;
        pack_panel({type, rows, k, {}, 0}, format, to + panel * panel_bytes(format, k));
      });
    });
    const double bytes = static_cast<double>(row_bytes * n + packed);
    add(what, seconds, bytes / limits_.copy_bytes_per_s,
        text("%.1f GB/s", bytes / seconds * 1e-9));
  }

  // The last `rows` tokens of a context, all heads.
  void attention(KvFormat format, uint32_t context, uint32_t rows, const Heads& heads) {
    static constexpr const char* kNames[] = {"f32", "f16", "bf16", "q8_0"};
    const std::string what = absl::StrCat("attention ", kNames[static_cast<int>(format)], " C=", context, rows == 1 ? "" : absl::StrCat(" M=", rows),
                                          " heads ", heads.kv * heads.group, "/", heads.kv, "x", heads.dim, heads.latent == 0 ? "" : absl::StrCat(" of which ", heads.latent, " are values"));
    if (!wanted(what)) return;
    AttentionRun attention(format, context, rows, heads);
    const double seconds = best_seconds(flags_.seconds, [&](int run) { attention.run(kernels_, pool_, run); });
    const double bytes = static_cast<double>(attention.kv_bytes());
    const double seen = rows * (context - (rows - 1) / 2.0);  // pairs of a query and a token
    const double operations = 2.0 * seen * heads.kv * heads.group * (heads.dim + heads.values());
    const double memory = bytes / limits_.read_bytes_per_s, compute = operations / limits_.f32_ops_per_s;
    add(what, seconds, std::max(memory, compute),
        compute > memory ? text("%.0f GFLOP/s", operations / seconds * 1e-9) : text("%.1f GB/s", bytes / seconds * 1e-9));
  }

  // The recurrence of `sequences` of 32 heads of 128 keys and 64 values each, for `tokens` each: states read, written, or multiplied with.
  void scan(bool delta, uint32_t sequences, uint32_t tokens) {
    const std::string what = absl::StrCat("scan ", delta ? "delta" : "plain", " B=", sequences, " M=", tokens);
    if (!wanted(what)) return;
    ScanRun scan(delta, sequences, tokens);
    const double seconds = best_seconds(flags_.seconds, [&](int run) { scan.run(kernels_, pool_, run); });
    const double bytes = 2.0 * ScanRun::kStateBytes * ScanRun::kHeads * sequences;
    const double operations = (delta ? 8.0 : 6.0) * ScanRun::kStateBytes / sizeof(float) * ScanRun::kHeads * sequences * tokens;
    const double memory = bytes / limits_.copy_bytes_per_s, compute = operations / limits_.f32_ops_per_s;
    add(what, seconds, std::max(memory, compute), compute > memory ? text("%.0f GFLOP/s", operations / seconds * 1e-9) : text("%.1f GB/s", bytes / seconds * 1e-9));
  }

  // 6144 channels of four taps; `tokens` rows read and written.
  void convolve(uint32_t tokens) {
    constexpr uint32_t kChannels = 6144, kTaps = 4, kStretch = 512;
    const std::string what = absl::StrCat("convolve ", kChannels, " M=", tokens);
    if (!wanted(what)) return;
    const std::vector<float> numbers((tokens + kTaps - 1) * uint64_t{kChannels}, 0.1f), weight(kTaps * uint64_t{kChannels}, 0.3f);
    std::vector<float> out(tokens * uint64_t{kChannels});
    const double seconds = best_seconds(flags_.seconds, [&](int) {
      pool_.parallel_for(kChannels / kStretch, [&](size_t stretch, int) {
        const size_t first = stretch * kStretch;
        kernels_.convolve({.x = numbers.data() + (kTaps - 1) * kChannels + first, .x_stride = kChannels, .tail = numbers.data() + first, .tail_stride = kChannels,
                           .weight = weight.data() + first, .weight_stride = kChannels, .out = out.data() + first, .out_stride = kChannels, .channels = kStretch,
                           .taps = kTaps, .tokens = tokens, .silu = true});
      });
    });
    const double bytes = 2.0 * static_cast<double>(out.size()) * sizeof(float);
    add(what, seconds, bytes / limits_.copy_bytes_per_s, text("%.1f GB/s", bytes / seconds * 1e-9));
  }

  const std::vector<Result>& results() const { return results_; }

 private:
  bool wanted(const std::string& what) const { return what.find(flags_.only) != std::string::npos; }
  void add(std::string what, double seconds, double limit, std::string rate) { results_.push_back({std::move(what), seconds, limit, std::move(rate)}); }

  const Flags flags_;
  ThreadPool pool_;
  const Limits limits_;
  const Kernels kernels_;
  std::vector<Result> results_;
};

void print_json(const Bench& bench, const Limits& limits, int threads) {
  Json out = {{"threads", threads}, {"kernels", best_kernels().name},
              {"limits", {{"read_bytes_per_s", limits.read_bytes_per_s}, {"copy_bytes_per_s", limits.copy_bytes_per_s},
                          {"int8_ops_per_s", limits.int8_ops_per_s},
                          {"int8_scaled_ops_per_s", limits.int8_scaled_ops_per_s}, {"f32_ops_per_s", limits.f32_ops_per_s}}},
              {"ops", Json::array()}};
  for (const Result& r : bench.results()) {
    out["ops"].push_back({{"what", r.what}, {"seconds", r.seconds}, {"limit_seconds", r.limit_seconds}, {"share", r.limit_seconds / r.seconds}});
  }
  std::printf("%s\n", dump_json(out).c_str());
}

int run(const Flags& flags) {
  if (!force_target(flags.target)) {
    std::fprintf(stderr, "kernels: this machine has no kernels for %s\n", flags.target.c_str());
    return 2;
  }
  const Limits limits = LimitMeter(flags.threads, flags.seconds, flags.target == "AVX2").measure();
  Bench bench(flags, limits);
  for (const WeightFormat format : {WeightFormat::kQ8_0, WeightFormat::kQ4_0, WeightFormat::kQ4_K, WeightFormat::kQ6_K, WeightFormat::kF16, WeightFormat::kBF16, WeightFormat::kF32}) {
    for (const uint32_t rows : {1u, 2u, 3u, 4u, 8u, 16u, 32u, 512u}) bench.linear(format, 5632, 2048, rows);
  }
  bench.pack(DType::kQ8_0, WeightFormat::kQ8_0, 5632, 2048);
  bench.pack(DType::kQ4_0, WeightFormat::kQ4_0, 5632, 2048);
  bench.pack(DType::kQ4_K, WeightFormat::kQ4_K, 5632, 2048);
  bench.pack(DType::kBF16, WeightFormat::kBF16, 5632, 2048);
  for (const KvFormat format : {KvFormat::kF16, KvFormat::kBF16, KvFormat::kQ8_0}) {
    for (const uint32_t context : {512u, 2048u, 8192u}) bench.attention(format, context, 1, {4, 8, 64});
  }
  for (const uint32_t context : {512u, 2048u, 8192u}) bench.attention(KvFormat::kF16, context, 1, {8, 4, 128});
  for (const uint32_t context : {512u, 2048u, 8192u}) bench.attention(KvFormat::kF16, context, 512, {4, 8, 64});
  bench.attention(KvFormat::kF16, 2048, 512, {8, 4, 128});
  for (const uint32_t rows : {1u, 512u}) bench.attention(KvFormat::kF16, 2048, rows, {1, 16, 576, 512});
  for (const uint32_t rows : {1u, 32u, 33u}) bench.attention(KvFormat::kF16, 12000, rows, {2, 4, 256});
  for (const bool delta : {false, true}) {
    bench.scan(delta, 1, 1);
    bench.scan(delta, 16, 1);
    bench.scan(delta, 1, 512);
  }
  bench.convolve(512);
  if (flags.json) {
    print_json(bench, limits, flags.threads);
    return 0;
  }
  std::printf("%d threads, %s; read %.1f GB/s, copy %.1f GB/s, int8 %.0f Gop/s (%.0f with scales), f32 %.0f GFLOP/s; best of %d\n\n", flags.threads,
              best_kernels().name, limits.read_bytes_per_s * 1e-9, limits.copy_bytes_per_s * 1e-9, limits.int8_ops_per_s * 1e-9, limits.int8_scaled_ops_per_s * 1e-9,
              limits.f32_ops_per_s * 1e-9, kRuns);
  for (const Result& r : bench.results()) {
    std::printf("%-36s %10.1f us %14s %6.0f %% of the limit\n", r.what.c_str(), r.seconds * 1e6, r.rate.c_str(), 100 * r.limit_seconds / r.seconds);
  }
  return 0;
}

}  // namespace
}  // namespace shoal

int main(int argc, char** argv) {
  shoal::Flags flags;
  bool cpu_time = false;
  CLI::App app("The kernels beside what the machine can do");
  app.add_option("--threads", flags.threads, "Threads")->check(CLI::Range(1, 1024));
  app.add_flag("--cpu-time", cpu_time, "Of one thread, by processor time");
  app.add_option("--only", flags.only, "What has this word in its name");
  app.add_option("--target", flags.target, "Kernels of this instruction set");
  app.add_flag("--json", flags.json, "Prints JSON");
  CLI11_PARSE(app, argc, argv);
  if (cpu_time) flags.seconds = shoal::Seconds::kCpu, flags.threads = 1;
  return shoal::run(flags);
}
