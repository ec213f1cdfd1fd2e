// cpu_peer --model FILE.gguf [--peer-bench PATH] [--peer-args ARGS] [--peer-batched PATH] [--peer-batched-args ARGS] [--threads N] [--runs N]
//          [--only prefill|decode|single|batch] [--batches 8,32] [--one-token] [--cpu-time] [--json]
//
// The CPU engine's forward pass on a real file, interleaved with llama-bench (and llama-batched-bench) of llama.cpp on the
// same file, and as a share of what this machine can do at best, measured in the same run:
//
//   prefill   512 tokens in one step; share of the multiply-add limit (int8, or f32 for unquantised weights) that the
//             products of all layers but the last take; that one is computed for the row asked for alone, but for its keys, and
//             attention and the rest are not counted as work either
//   decode    64 tokens of one sequence; tokens/s x bytes of weights that a token reads, as a share of the read bandwidth; of a
//             model that keeps a state also with the state, which every token reads and writes
//   batch B   12 steps of B sequences at once; share of the read bandwidth for the weights that they have in common, or of the
//             multiply-add limit where that is the lower one. With --one-token all sequences are given the same tokens, as the peer's
//             program does in ik_llama.cpp and older versions of llama.cpp: rows of experts' models then use the same experts
//
// Medians over --runs rounds of each side in turn (A B A B), of a share as well: the limit of a decode is what memory gave right
// before and after it. --target makes our kernels do without what the machine has beyond that instruction set (AVX2), beside a peer
// built likewise. --cpu-time counts the seconds of our one thread, for a machine with other work on it. Exit code 0 whatever the
// ratio: it measures.
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/strings/numbers.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_split.h"
#include "base/bytes.h"
#include "base/check.h"
#include "base/json.h"
#include "base/rng.h"
#include "bench/limits.h"
#include "bench/peer.h"
#include "bench/target.h"
#include "device/cpu_device.h"
#include "device/thread_pool.h"
#include "formats/checkpoint.h"
#include "kernels/kernels.h"
#include "models/backend.h"
#include "models/model.h"
#include "nlohmann/json.hpp"

namespace shoal {
namespace {

constexpr uint32_t kPrefillTokens = 512;
constexpr uint32_t kDecodeTokens = 64;
constexpr uint32_t kBatchSteps = 12;

struct Flags {
  std::string model, peer_bench, peer_args, peer_batched, peer_batched_args, target, only;
  std::vector<uint32_t> batches = {1, 4, 8, 16, 32};
  int threads = 2;
  int runs = 3;
  bool json = false, one_token = false;
  Seconds seconds = Seconds::kWall;

  bool measures(std::string_view what) const { return only.empty() || only == what || (only == "single" && what != "batch"); }
};

// Zeroed memory on huge pages where the system gives them.
struct Memory {
  explicit Memory(uint64_t bytes) : size(round_up(bytes, uint64_t{2} << 20)) {
    data = static_cast<std::byte*>(mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    if (data == MAP_FAILED) std::abort();
    madvise(data, size, MADV_HUGEPAGE);
    std::memset(data, 0, size);
  }
  ~Memory() { munmap(data, size); }
  Memory(const Memory&) = delete;
  DeviceSpan span() const { return {host_address(data), size}; }
  uint64_t size;
  std::byte* data;
};

// A loaded model, and sequences of random tokens in it.
class Ours {
 public:
  static StatusOr<std::unique_ptr<Ours>> open(const Flags& flags) {
    auto ours = std::unique_ptr<Ours>(new Ours(flags));
    ASSIGN_OR_RETURN(std::shared_ptr<const Checkpoint> checkpoint, open_checkpoint(flags.model));
    const ModelConfig& config = checkpoint->config;
    ours->table_parameters_ = double(config.vocab_size) * config.hidden_size;
    ours->tied_ = config.tied_embeddings;
    ours->layers_ = config.layers;
    if (config.experts) {
      const ExpertConfig& e = *config.experts;
      const auto layers = static_cast<double>(std::count(e.layers.begin(), e.layers.end(), true));
      ours->idle_share_ = 1 - double(e.used) / e.count;
      ours->idle_parameters_ = layers * (e.count - e.used) * 3.0 * config.hidden_size * e.intermediate_size;
    }
    ASSIGN_OR_RETURN(ours->plan_, plan_model(std::move(checkpoint), {}));
    ours->memory_ = std::make_unique<Memory>(ours->plan_->weight_bytes());
    LoadControl control;
    const double begin = seconds_now(Seconds::kWall);
    ASSIGN_OR_RETURN(ours->device_, CpuDevice::make(1));
    ours->backend_ = make_cpu_backend(*ours->device_, ours->threads_);
    ASSIGN_OR_RETURN(ours->model_, ours->plan_->load(ours->memory_->span(), *ours->backend_, ours->threads_, control));
    ours->load_seconds_ = seconds_now(Seconds::kWall) - begin;
    ours->workspace_ = std::make_unique<Memory>(ours->plan_->workspace_bytes(kPrefillTokens, 64));
    return ours;
  }

  const ModelPlan& plan() const { return *plan_; }
  double load_seconds() const { return load_seconds_; }

  // Multiplied for every token of a prompt: all but the embedding, and what is computed for the row that is asked for alone, the head and
  // most of the last layer.
  double prefill_parameters() const { return (parameters() - (tied_ ? 1 : 2) * table_parameters_ - idle_parameters_) * (1 - 1.0 / layers_); }
  // Read for every token of an answer: all but a table that is only looked up, and experts that it is not routed to.
  double decode_bytes() const { return weight_bytes() * (1 - ((tied_ ? 0 : table_parameters_) + idle_parameters_) / parameters()); }
  // Likewise for a step of `rows` tokens, if each expert is as likely as another: rows share those that they have in common.
  double batch_bytes(uint32_t rows) const {
    if (one_token_) return decode_bytes();
    const double idle = idle_parameters_ > 0 ? idle_parameters_ / idle_share_ * std::pow(idle_share_, rows) : 0;
    return weight_bytes() * (1 - ((tied_ ? 0 : table_parameters_) + idle) / parameters());
  }
  double state_bytes() const { return static_cast<double>(plan_->state_bytes()); }  // of one sequence
  double active_parameters() const { return parameters() - (tied_ ? 0 : table_parameters_) - idle_parameters_; }
  bool quantized() const { return weight_bytes() < 1.5 * parameters(); }

  double prefill_per_s() {
    Sequences one(*plan_, 1, kPrefillTokens);
    const double begin = seconds_now(seconds_);
    step(one, kPrefillTokens);
    return kPrefillTokens / (seconds_now(seconds_) - begin);
  }

  // Tokens per second of `count` sequences together.
  double decode_per_s(uint32_t count, uint32_t steps) {
    Sequences some(*plan_, count, steps + 1);
    step(some, 1);
    const double begin = seconds_now(seconds_);
    for (uint32_t i = 0; i < steps; ++i) step(some, 1);
    return count * steps / (seconds_now(seconds_) - begin);
  }

 private:
  struct Sequences {
    Sequences(const ModelPlan& plan, uint32_t count, uint32_t tokens)
        : for_tokens((tokens + kTokensPerBlock - 1) / kTokensPerBlock), per_sequence(for_tokens + 2 * plan.state_blocks()),
          kv(count * per_sequence * plan.kv_block_bytes()), blocks(count), states(count) {
      for (uint32_t s = 0; s < count; ++s) {
        for (uint32_t b = 0; b < per_sequence; ++b) {
          auto& list = b < for_tokens ? blocks[s] : states[s][(b - for_tokens) / plan.state_blocks()];
          list.push_back(kv.span().begin + (s * per_sequence + b) * plan.kv_block_bytes());
        }
      }
    }
    uint64_t for_tokens, per_sequence;
    Memory kv;
    std::vector<std::vector<DeviceAddress>> blocks;
    std::vector<std::array<std::vector<DeviceAddress>, 2>> states;  // now, and next
    uint32_t done = 0;
  };

  double parameters() const { return static_cast<double>(plan_->parameter_count()); }
  double weight_bytes() const { return static_cast<double>(plan_->weight_bytes()); }

  explicit Ours(const Flags& flags) : threads_(flags.threads), seconds_(flags.seconds), one_token_(flags.one_token) {}

  void step(Sequences& s, uint32_t tokens_each) {
    std::vector<TokenId> tokens;
    std::vector<SequenceSlice> slices;
    std::vector<LogitsQuery> last;
    for (size_t i = 0; i < s.blocks.size(); ++i) {
      for (uint32_t t = 0; t < tokens_each; ++t) {
        const bool as_the_first = one_token_ && i > 0;
        tokens.push_back(as_the_first ? tokens[t] : static_cast<TokenId>(rng_.below(plan_->vocab_size())));
      }
      SliceState state{.after = s.states[i][1]};
      if (s.done > 0) state.before = s.states[i][0];
      slices.push_back({tokens_each, s.done, s.done + tokens_each, s.blocks[i], state});
      last.push_back({static_cast<uint32_t>(tokens.size() - 1)});
    }
    const ForwardInput input{tokens, slices, last};
    CHECK(!(*(*model_->begin(input, workspace_->span()))->advance()).has_value());
    for (auto& states : s.states) std::swap(states[0], states[1]);
    s.done += tokens_each;
  }

  ThreadPool threads_;
  Seconds seconds_;
  bool one_token_;
  std::unique_ptr<ModelPlan> plan_;
  std::unique_ptr<Memory> memory_, workspace_;
  std::unique_ptr<CpuDevice> device_;
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<Model> model_;
  Rng rng_{1};
  double load_seconds_ = 0;
  double layers_ = 1;
  double table_parameters_ = 0;  // of the embedding
  double idle_parameters_ = 0;  // of experts that one token is not routed to ...
  double idle_share_ = 0;       // ... and their share of all experts
  bool tied_ = false;            // the embedding is the head
};

// --- the peer: its own programs, their JSON ---------------------------------------------------------------------------

struct PeerRates {
  double prefill = 0, decode = 0;
};

PeerRates peer_rates(const Flags& flags) {
  PeerRates rates;
  const auto text = output_of("'" + flags.peer_bench + "' -m '" + flags.model + "' -p " + std::to_string(kPrefillTokens) + " -n " +
                              std::to_string(kDecodeTokens) + " -r 1 -t " + std::to_string(flags.threads) + " -o json " + flags.peer_args);
  const Json json = text ? Json::parse(*text, nullptr, false) : Json();
  if (!json.is_array()) {
    std::fprintf(stderr, "cpu_peer: %s did not print what llama-bench prints\n", flags.peer_bench.c_str());
    std::exit(1);
  }
  for (const Json& test : json) (test["n_prompt"] > 0 ? rates.prefill : rates.decode) = test["avg_ts"].get<double>();
  return rates;
}

// Tokens per second of decode by batch, from the table that llama-batched-bench prints (ik_llama.cpp's has no other form).
std::map<uint32_t, double> peer_batched(const Flags& flags) {
  std::string batches;
  for (const uint32_t b : flags.batches) batches += (batches.empty() ? "" : ",") + std::to_string(b);
  const auto text = output_of("('" + flags.peer_batched + "' -m '" + flags.model + "' -c 4096 -b 512 -ub 512 -npp 1 -ntg " +
                              std::to_string(kBatchSteps) + " -npl " + batches + " -t " + std::to_string(flags.threads) + " " + flags.peer_batched_args + " 2>&1)");  // where it prints differs
  std::map<uint32_t, double> rates;
  std::vector<std::string> names;
  for (const std::string& line : std::vector<std::string>(absl::StrSplit(text.value_or(""), '\n'))) {
    std::vector<std::string> cells = absl::StrSplit(line, '|');
    for (std::string& cell : cells) absl::StripAsciiWhitespace(&cell);
    const auto at = [&](std::string_view name) { return static_cast<size_t>(std::find(names.begin(), names.end(), name) - names.begin()); };
    if (std::find(cells.begin(), cells.end(), "S_TG t/s") != cells.end()) names = cells;
    uint32_t batch = 0;
    double rate = 0;
    if (cells.size() == names.size() && absl::SimpleAtoi(cells[at("B")], &batch) && absl::SimpleAtod(cells[at("S_TG t/s")], &rate)) rates[batch] = rate;
  }
  if (rates.empty()) {
    std::fprintf(stderr, "cpu_peer: %s did not print what llama-batched-bench prints\n", flags.peer_batched.c_str());
    std::exit(1);
  }
  return rates;
}

// --- the table ----------------------------------------------------------------------------------------------------------

struct Row {
  std::string what;
  std::vector<double> ours, peer;
  std::vector<double> shares{};  // of what the machine's limit would allow, round by round
  double with_state = 0;         // what that limit is multiplied by if the state's way to the cores and back counts too; 0: no state
};

struct Table {
  Row prefill{"prefill 512", {}, {}}, decode{"decode", {}, {}};
  std::vector<Row> batches;
  Limits limits;

  std::vector<const Row*> rows() const {
    std::vector<const Row*> all = {&prefill, &decode};
    for (const Row& row : batches) all.push_back(&row);
    std::erase_if(all, [](const Row* row) { return row->ours.empty(); });
    return all;
  }
};

void measure_peer(const Flags& flags, Table& table) {
  if (!flags.peer_bench.empty() && (flags.measures("prefill") || flags.measures("decode"))) {
    const PeerRates peer = peer_rates(flags);
    table.prefill.peer.push_back(peer.prefill);
    table.decode.peer.push_back(peer.decode);
  }
  if (flags.peer_batched.empty() || !flags.measures("batch")) return;
  const std::map<uint32_t, double> peer = peer_batched(flags);
  for (size_t b = 0; b < flags.batches.size(); ++b) {
    if (peer.contains(flags.batches[b])) table.batches[b].peer.push_back(peer.at(flags.batches[b]));
  }
}

// A decode of `count` sequences, between two looks at what memory gives. A step reads `bytes` and multiplies for `seconds_of_ops`.
void measure_decode(Ours& ours, LimitMeter& meter, uint32_t count, uint32_t steps, double bytes, double seconds_of_ops, Row& row) {
  const double before = meter.read_bytes_per_s();
  const double rate = ours.decode_per_s(count, steps);
  const double read = bytes / ((before + meter.read_bytes_per_s()) / 2);
  row.ours.push_back(rate);
  row.shares.push_back(rate / (count / std::max(read, seconds_of_ops)));
}

Table measure(const Flags& flags, Ours& ours, LimitMeter& meter) {
  Table table;
  for (const uint32_t batch : flags.batches) table.batches.push_back({"decode batch " + std::to_string(batch), {}, {}});
  std::vector<Limits> limits;
  if (ours.state_bytes() > 0) table.decode.with_state = ours.decode_bytes() / (ours.decode_bytes() + 2 * ours.state_bytes());
  (void)ours.prefill_per_s();  // touches every page once
  for (int run = 0; run < flags.runs; ++run) {
    const Limits& limit = limits.emplace_back(meter.measure());
    const double ops = ours.quantized() ? limit.int8_ops_per_s : limit.f32_ops_per_s;
    if (flags.measures("prefill")) {
      table.prefill.ours.push_back(ours.prefill_per_s());
      table.prefill.shares.push_back(table.prefill.ours.back() * 2 * ours.prefill_parameters() / ops);
    }
    if (flags.measures("decode")) measure_decode(ours, meter, 1, kDecodeTokens, ours.decode_bytes(), 0, table.decode);
    for (size_t b = 0; flags.measures("batch") && b < flags.batches.size(); ++b) {
      const uint32_t rows = flags.batches[b];
      measure_decode(ours, meter, rows, kBatchSteps, ours.batch_bytes(rows), rows * 2 * ours.active_parameters() / ops, table.batches[b]);
    }
    measure_peer(flags, table);
  }
  table.limits = median_limits(limits);
  return table;
}

std::string load_average() {
  std::ifstream file("/proc/loadavg");
  std::string load;
  file >> load;
  return load;
}

void print_table(const Flags& flags, const Table& table, const Ours& ours) {
  const Limits& limits = table.limits;
  std::printf("%s, %d threads, %s kernels, median of %d, load average %s, loaded in %.2f s\n", flags.model.c_str(), flags.threads,
              best_kernels().name, flags.runs, load_average().c_str(), ours.load_seconds());
  std::printf("limits: read %.1f GB/s, copy %.1f GB/s, int8 %.0f Gop/s (%.0f with scales), f32 %.0f GFLOP/s\n\n", limits.read_bytes_per_s * 1e-9,
              limits.copy_bytes_per_s * 1e-9, limits.int8_ops_per_s * 1e-9, limits.int8_scaled_ops_per_s * 1e-9, limits.f32_ops_per_s * 1e-9);
  std::printf("%-16s %12s %12s %8s %14s\n", "tokens/s", "shoal", "peer", "ratio", "of the limit");
  for (const Row* row : table.rows()) {
    const double ours_rate = median(row->ours), peer_rate = median(row->peer);
    std::printf("%-16s %12.1f %12.1f %8s %14s\n", row->what.c_str(), ours_rate, peer_rate,
                peer_rate > 0 ? (std::to_string(ours_rate / peer_rate).substr(0, 4) + "x").c_str() : "-",
                (std::to_string(100 * median(row->shares)).substr(0, 4) + " %").c_str());
    if (row->with_state > 0) std::printf("%-44s %14.1f %%\n", "  with its state, read and written", 100 * median(row->shares) / row->with_state);
  }
}

void print_json(const Flags& flags, const Table& table, const Ours& ours) {
  const Limits& limits = table.limits;
  Json out = {{"model", flags.model}, {"threads", flags.threads}, {"kernels", best_kernels().name}, {"runs", flags.runs},
              {"load_average", load_average()}, {"load_seconds", ours.load_seconds()},
              {"limits", {{"read_bytes_per_s", limits.read_bytes_per_s}, {"copy_bytes_per_s", limits.copy_bytes_per_s},
                          {"int8_ops_per_s", limits.int8_ops_per_s},
                          {"int8_scaled_ops_per_s", limits.int8_scaled_ops_per_s}, {"f32_ops_per_s", limits.f32_ops_per_s}}},
              {"rows", Json::array()}};
  for (const Row* row : table.rows()) {
    out["rows"].push_back({{"what", row->what}, {"shoal_tokens_per_s", median(row->ours)}, {"peer_tokens_per_s", median(row->peer)},
                           {"of_limit", median(row->shares)}, {"of_limit_with_state", row->with_state > 0 ? median(row->shares) / row->with_state : 0},
                           {"shoal_runs", row->ours}, {"peer_runs", row->peer}, {"shares", row->shares}});
  }
  std::printf("%s\n", dump_json(out).c_str());
}

int run(const Flags& flags) {
  if (!force_target(flags.target)) {
    std::fprintf(stderr, "cpu_peer: this machine has no kernels for %s\n", flags.target.c_str());
    return 2;
  }
  LimitMeter meter(flags.threads, flags.seconds, flags.target == "AVX2");
  auto ours = Ours::open(flags);
  if (!ours.ok()) {
    std::fprintf(stderr, "cpu_peer: %s\n", std::string(ours.status().message()).c_str());
    return 1;
  }
  (flags.json ? print_json : print_table)(flags, measure(flags, **ours, meter), **ours);
  return 0;
}

}  // namespace
}  // namespace shoal

int main(int argc, char** argv) {
  shoal::Flags flags;
  bool cpu_time = false;
  CLI::App app("One model on this processor, beside a peer and what the machine can do");
  app.add_option("--model", flags.model, "FILE.gguf")->required()->check(CLI::ExistingPath);
  app.add_option("--peer-bench", flags.peer_bench, "The peer's llama-bench");
  app.add_option("--peer-args", flags.peer_args, "More arguments for it");
  app.add_option("--peer-batched", flags.peer_batched, "The peer's llama-batched-bench");
  app.add_option("--peer-batched-args", flags.peer_batched_args, "More arguments for it");
  app.add_option("--threads", flags.threads, "Threads")->check(CLI::Range(1, 1024));
  app.add_option("--runs", flags.runs, "Runs, of which the median counts")->check(CLI::Range(1, 1000));
  app.add_option("--target", flags.target, "Kernels of this instruction set");
  app.add_option("--only", flags.only, "Of the figures")->check(CLI::IsMember({"prefill", "decode", "single", "batch"}));
  app.add_option("--batches", flags.batches, "Sequences at once")->delimiter(',')->check(CLI::Range(1u, 32u));
  app.add_flag("--one-token", flags.one_token, "The same token in all rows, as the peer has it");
  app.add_flag("--cpu-time", cpu_time, "Of one thread, by processor time");
  app.add_flag("--json", flags.json, "Prints JSON");
  CLI11_PARSE(app, argc, argv);
  if (cpu_time) flags.seconds = shoal::Seconds::kCpu, flags.threads = 1;
  return shoal::run(flags);
}
