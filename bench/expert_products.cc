// expert_products [--threads N] [--experts N] [--used N] [--runs N] [--json]
//
// What the products of a layer of experts gain by how they are computed: matrices of Q8_0 [1408, 2048], rows routed at random.
//
//   grouped      experts that have rows, each for its own rows, in one operation of all threads: as the models do it
//   one by one   the same, an operation for each expert
//   two lanes    grouped, half the rows after the other half: experts that both have are read twice
//   no shrink    grouped, every expert that has rows for all rows of the batch
//   all experts  as no shrink, of every expert
//
// The ways take turns in one run, each on matrices that no cache holds from the time before; medians.
#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <numeric>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "base/bytes.h"
#include "base/clock.h"
#include "base/json.h"
#include "base/rng.h"
#include "bench/peer.h"
#include "device/thread_pool.h"
#include "kernels/kernels.h"
#include "kernels/ops.h"
#include "nlohmann/json.hpp"
#include "tensor/tensor.h"

namespace shoal {
namespace {

constexpr uint32_t kWidth = 1408, kHidden = 2048, kRowsMax = 128;
constexpr uint64_t kBeyondCaches = 768u << 20;
constexpr std::array<uint32_t, 5> kRows = {1, 2, 8, 32, kRowsMax};
constexpr std::array<const char*, 5> kWays = {"grouped", "one by one", "two lanes", "no shrink", "all experts"};

struct Flags {
  int threads = 2, experts = 64, used = 6, runs = 9;
  bool json = false;
};

class Layer {
 public:
  explicit Layer(const Flags& flags) : flags_(flags), pool_(flags.threads), kernels_(best_kernels()) {}

  Status make() {
    ASSIGN_OR_RETURN(weights_, Buffer::allocate(copies_ * layer_bytes_));
    for (uint64_t at = 0; at < weights_.size(); at += 8) {
      const uint64_t tame = rng_.bits() & 0x3b3b3b3b3b3b3b3bull;  // as f16, whatever lies where
      std::memcpy(weights_.data() + at, &tame, 8);
    }
    std::vector<float> x(kHidden);
    for (uint32_t row = 0; row < kRowsMax; ++row) {
      for (float& v : x) v = static_cast<float>(rng_.uniform() - 0.5);
      kernels_.quantize_row(x.data(), kHidden, rows_.data() + row * quant_row_stride(kHidden));
    }
    return OkStatus();
  }

  // Routes so many rows; how many experts have any.
  uint32_t route(uint32_t rows) {
    rows_of_.assign(static_cast<size_t>(flags_.experts), 0);
    std::vector<uint32_t> order(rows_of_.size());
    std::iota(order.begin(), order.end(), 0u);
    lanes_ = {rows_of_, rows_of_};
    for (uint32_t row = 0; row < rows; ++row) {
      for (size_t i = 0; i < static_cast<size_t>(flags_.used); ++i) {
        std::swap(order[i], order[i + rng_.below(order.size() - i)]);
        ++rows_of_[order[i]];
        ++lanes_[row < (rows + 1) / 2 ? 0 : 1][order[i]];
      }
    }
    return static_cast<uint32_t>(std::count_if(rows_of_.begin(), rows_of_.end(), [](uint32_t n) { return n > 0; }));
  }

  double seconds_of(size_t way, uint32_t rows) {
    std::vector<uint32_t> all = rows_of_;
    for (uint32_t& n : all) n = n > 0 || way == 4 ? rows : 0;
    copy_ = (copy_ + 1) % copies_;
    const TimePoint begin = steady_now();
    if (way == 0) multiply(kernels_, pool_, products(rows_of_));
    if (way == 1) {
      for (const Product& product : products(rows_of_)) multiply(kernels_, pool_, {&product, 1});
    }
    if (way == 2) {
      for (const auto& lane : lanes_) multiply(kernels_, pool_, products(lane));
    }
    if (way >= 3) multiply(kernels_, pool_, products(all));
    return to_seconds(steady_now() - begin);
  }

 private:
  std::vector<Product> products(const std::vector<uint32_t>& rows_of) {
    std::vector<Product> products;
    for (size_t e = 0; e < rows_of.size(); ++e) {
      const PackedMatrix matrix{WeightFormat::kQ8_0, kWidth, kHidden, weights_.data() + copy_ * layer_bytes_ + e * bytes_, nullptr, 0};
      float* const out = out_.data() + e * kRowsMax * kWidth;
      if (rows_of[e] > 0) products.push_back({{matrix, rows_of[e], nullptr, kHidden, rows_.data(), out, kWidth, false, {}}, nullptr});
    }
    return products;
  }

  const Flags flags_;
  const uint64_t bytes_ = packed_bytes(WeightFormat::kQ8_0, kWidth, kHidden), layer_bytes_ = static_cast<uint64_t>(flags_.experts) * bytes_;
  const uint64_t copies_ = kBeyondCaches / layer_bytes_ + 2;
  uint64_t copy_ = 0;
  ThreadPool pool_;
  const Kernels kernels_;
  Rng rng_{1};
  Buffer weights_;
  std::vector<QuantBlock> rows_ = std::vector<QuantBlock>(kRowsMax * quant_row_stride(kHidden));
  std::vector<float> out_ = std::vector<float>(static_cast<uint64_t>(flags_.experts) * kRowsMax * kWidth);
  std::vector<uint32_t> rows_of_;  // by expert
  std::array<std::vector<uint32_t>, 2> lanes_;
};

Status measure(const Flags& flags) {
  Layer layer(flags);
  RETURN_IF_ERROR(layer.make());
  Json json = Json::array();
  if (!flags.json) std::printf("%d experts, %d of them for a row; ms, and times the grouped\n\n%6s %8s", flags.experts, flags.used, "rows", "experts");
  for (size_t way = 0; way < kWays.size() && !flags.json; ++way) std::printf(" %16s", kWays[way]);
  if (!flags.json) std::printf("\n");
  for (const uint32_t rows : kRows) {
    std::array<std::vector<double>, kWays.size()> seconds, ratios;
    std::vector<double> active;
    for (int run = 0; run < flags.runs; ++run) {
      active.push_back(layer.route(rows));
      for (size_t way = 0; way < kWays.size(); ++way) {
        seconds[way].push_back(layer.seconds_of(way, rows));
        ratios[way].push_back(seconds[way].back() / seconds[0].back());
      }
    }
    Json row = {{"rows", rows}, {"experts", median(active)}};
    for (size_t way = 0; way < kWays.size(); ++way) row[kWays[way]] = {{"seconds", median(seconds[way])}, {"ratio", median(ratios[way])}};
    if (!flags.json) std::printf("%6u %8.0f", rows, median(active));
    for (size_t way = 0; way < kWays.size() && !flags.json; ++way) std::printf(" %9.2f %5.2fx", median(seconds[way]) * 1e3, median(ratios[way]));
    if (!flags.json) std::printf("\n");
    json.push_back(std::move(row));
  }
  if (flags.json) std::printf("%s\n", dump_json(json).c_str());
  return OkStatus();
}

}  // namespace
}  // namespace shoal

int main(int argc, char** argv) {
  shoal::Flags flags;
  CLI::App app("What grouping, lanes and the shrunken panels gain for products of experts");
  app.add_option("--threads", flags.threads, "Threads")->check(CLI::Range(1, 1024));
  app.add_option("--experts", flags.experts, "Experts of the layer")->check(CLI::Range(8, 256));
  app.add_option("--used", flags.used, "Experts of a row")->check(CLI::Range(1, 256));
  app.add_option("--runs", flags.runs, "Runs, of which the median counts")->check(CLI::Range(1, 1000));
  app.add_flag("--json", flags.json, "Prints JSON");
  app.final_callback([&] {
    if (flags.used > flags.experts) throw CLI::ValidationError("--used", "no more than --experts");
  });
  CLI11_PARSE(app, argc, argv);
  if (const shoal::Status measured = shoal::measure(flags); !measured.ok()) {
    std::fprintf(stderr, "expert_products: %s\n", std::string(measured.message()).c_str());
    return 1;
  }
  return 0;
}
