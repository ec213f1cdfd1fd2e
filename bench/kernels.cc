// kernels [--threads N] [--json]: each CPU kernel beside the limit that it can meet at best, measured in the same run.
//
//   linear      W [N, K] times M rows: the larger of bytes of W / read bandwidth and operations / multiply-add rate
//   pack        stored rows into panels: bytes read and written / copy bandwidth
//   attention   one token that sees C tokens, all heads: bytes of K and V / read bandwidth
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

#include "base/bytes.h"
#include "base/clock.h"
#include "base/json.h"
#include "base/rng.h"
#include "bench/limits.h"
#include "device/thread_pool.h"
#include "kernels/kernels.h"
#include "kernels/ops.h"
#include "kernels/pack.h"
#include "nlohmann/json.hpp"

namespace shoal {
namespace {

constexpr uint64_t kBeyondCaches = 256u << 20;
constexpr int kRuns = 5;

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

double best_seconds(const std::function<void(int run)>& body) {
  double best = 1e30;
  for (int run = 0; run < kRuns; ++run) {
    const TimePoint begin = steady_now();
    body(run);
    best = std::min(best, to_seconds(steady_now() - begin));
  }
  return best;
}

std::string text(const char* format, double value) {
  char buffer[64];
  std::snprintf(buffer, sizeof buffer, format, value);
  return buffer;
}

class Bench {
 public:
  Bench(int threads, const Limits& limits) : pool_(threads), limits_(limits), kernels_(best_kernels()) {}

  void linear(WeightFormat format, uint32_t n, uint32_t k, uint32_t rows) {
    const uint64_t bytes = packed_bytes(format, n, k);
    const uint64_t copies = std::max<uint64_t>(1, kBeyondCaches / bytes);
    const Bytes weights(bytes * copies);
    std::vector<float> x(uint64_t{rows} * k), out(uint64_t{rows} * n);
    Rng rng(1);
    for (float& v : x) v = static_cast<float>(rng.uniform() - 0.5);
    std::vector<QuantBlock> scratch(uint64_t{rows} * k / kQuantBlock);
    const double seconds = best_seconds([&](int run) {
      const PackedMatrix matrix{format, n, k, weights.data + run % copies * bytes, nullptr, 0};
      const LinearOutput output{matrix, out.data()};
      shoal::linear(kernels_, pool_, {x.data(), rows, scratch.data()}, {&output, 1});
    });
    const double operations = 2.0 * rows * n * k;
    const double compute = operations / (is_quantized(format) ? limits_.int8_ops_per_s : limits_.f32_ops_per_s);
    const double memory = static_cast<double>(bytes) / limits_.read_bytes_per_s;
    add(absl::StrCat("linear ", weight_format_name(format), " ", n, "x", k, " M=", rows), seconds, std::max(compute, memory),
        compute > memory ? text("%.0f Gop/s", operations / seconds * 1e-9) : text("%.1f GB/s", static_cast<double>(bytes) / seconds * 1e-9));
  }

  void pack(DType type, WeightFormat format, uint32_t n, uint32_t k) {
    const uint64_t row_bytes = *dtype_bytes(type, k), packed = packed_bytes(format, n, k);
    const uint64_t copies = std::max<uint64_t>(1, kBeyondCaches / packed);
    const Bytes stored(row_bytes * n * copies), target(packed * copies);
    const double seconds = best_seconds([&](int run) {
      const std::byte* from = stored.data + run % copies * row_bytes * n;
      std::byte* to = target.data + run % copies * packed;
      pool_.parallel_for(n / kPanelRows, [&](size_t panel, int) {
        const std::byte* rows[kPanelRows];
        for (size_t i = 0; i < kPanelRows; ++i) rows[i] = from + (panel * kPanelRows + i) * row_bytes;
        pack_panel({type, rows, k, {}, 0}, format, to + panel * panel_bytes(format, k));
      });
    });
    const double bytes = static_cast<double>(row_bytes * n + packed);
    add(absl::StrCat("pack ", weight_format_name(format), " ", n, "x", k), seconds, bytes / limits_.copy_bytes_per_s,
        text("%.1f GB/s", bytes / seconds * 1e-9));
  }

  void attention(uint32_t context, uint32_t kv_heads, uint32_t group, uint32_t head_dim) {
    const uint64_t head_bytes = uint64_t{kKvTokens} * head_dim * 2, block_bytes = 2 * kv_heads * head_bytes;
    const uint32_t blocks = context / kKvTokens;
    const uint64_t copies = std::max<uint64_t>(1, kBeyondCaches / (block_bytes * blocks));
    const Bytes kv(block_bytes * blocks * copies);
    std::vector<float> q(uint64_t{kv_heads} * group * head_dim, 0.01f), out(q.size());
    const double seconds = best_seconds([&](int run) {
      std::vector<std::byte*> list;
      for (uint32_t b = 0; b < blocks; ++b) list.push_back(kv.data + (run % copies * blocks + b) * block_bytes);
      pool_.parallel_for(kv_heads, [&](size_t head, int) {
        AttentionCall call;
        call.q = q.data() + head * group * head_dim;
        call.out = out.data() + head * group * head_dim;
        call.q_stride = call.out_stride = q.size();
        call.blocks = list.data();
        call.key_offset = head * head_bytes;
        call.value_offset = (kv_heads + head) * head_bytes;
        call.format = KvFormat::kF16;
        call.head_dim = head_dim;
        call.group = group;
        call.rows = 1;
        call.position = context - 1;
        call.scale = 0.125f;
        kernels_.attention(call);
      });
    });
    const double bytes = static_cast<double>(block_bytes * blocks);
    add(absl::StrCat("attention C=", context, " heads ", kv_heads * group, "/", kv_heads, "x", head_dim), seconds,
        bytes / limits_.read_bytes_per_s, text("%.1f GB/s", bytes / seconds * 1e-9));
  }

  const std::vector<Result>& results() const { return results_; }

 private:
  void add(std::string what, double seconds, double limit, std::string rate) { results_.push_back({std::move(what), seconds, limit, std::move(rate)}); }

  ThreadPool pool_;
  const Limits limits_;
  const Kernels kernels_;
  std::vector<Result> results_;
};

void print_json(const Bench& bench, const Limits& limits, int threads) {
  Json out = {{"threads", threads}, {"kernels", best_kernels().name},
              {"limits", {{"read_bytes_per_s", limits.read_bytes_per_s}, {"copy_bytes_per_s", limits.copy_bytes_per_s},
                          {"int8_ops_per_s", limits.int8_ops_per_s}, {"f32_ops_per_s", limits.f32_ops_per_s}}},
              {"ops", Json::array()}};
  for (const Result& r : bench.results()) {
    out["ops"].push_back({{"what", r.what}, {"seconds", r.seconds}, {"limit_seconds", r.limit_seconds}, {"share", r.limit_seconds / r.seconds}});
  }
  std::printf("%s\n", dump_json(out).c_str());
}

int run(int threads, bool json) {
  const Limits limits = measure_limits(threads);
  Bench bench(threads, limits);
  for (const WeightFormat format : {WeightFormat::kQ8_0, WeightFormat::kQ4_0, WeightFormat::kQ4_K, WeightFormat::kQ6_K, WeightFormat::kBF16, WeightFormat::kF32}) {
    for (const uint32_t rows : {1u, 8u, 32u, 512u}) bench.linear(format, 5632, 2048, rows);
  }
  bench.pack(DType::kQ8_0, WeightFormat::kQ8_0, 5632, 2048);
  bench.pack(DType::kQ4_0, WeightFormat::kQ4_0, 5632, 2048);
  bench.pack(DType::kQ4_K, WeightFormat::kQ4_K, 5632, 2048);
  bench.pack(DType::kBF16, WeightFormat::kBF16, 5632, 2048);
  for (const uint32_t context : {512u, 4096u, 32'768u}) bench.attention(context, 4, 8, 64);
  if (json) {
    print_json(bench, limits, threads);
    return 0;
  }
  std::printf("%d threads, %s; read %.1f GB/s, copy %.1f GB/s, int8 %.0f Gop/s, f32 %.0f GFLOP/s; best of %d\n\n", threads,
              best_kernels().name, limits.read_bytes_per_s * 1e-9, limits.copy_bytes_per_s * 1e-9, limits.int8_ops_per_s * 1e-9,
              limits.f32_ops_per_s * 1e-9, kRuns);
  for (const Result& r : bench.results()) {
    std::printf("%-36s %10.1f us %14s %6.0f %% of the limit\n", r.what.c_str(), r.seconds * 1e6, r.rate.c_str(), 100 * r.limit_seconds / r.seconds);
  }
  return 0;
}

}  // namespace
}  // namespace shoal

int main(int argc, char** argv) {
  int threads = 2;
  bool json = false;
  for (int i = 1; i < argc; ++i) {
    const std::string flag = argv[i];
    if (flag == "--json") json = true;
    else if (flag == "--threads" && i + 1 < argc) threads = std::atoi(argv[++i]);
    else threads = 0;
  }
  if (threads < 1) {
    std::fprintf(stderr, "usage: kernels [--threads N] [--json]\n");
    return 2;
  }
  return shoal::run(threads, json);
}
