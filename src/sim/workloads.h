// Where simulated requests come from: a recorded trace, or distributions. Contents are made up; of a prompt only its
// length counts, and which blocks it shares with others.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/rng.h"
#include "sim/setup.h"
#include "workload/trace.h"

namespace shoal {

// Ids of prompts lie in [0, kSimulatedVocab).
constexpr uint32_t kSimulatedVocab = 32'000;

struct Lengths {
  uint32_t input_tokens = 1;
  uint32_t output_tokens = 1;
};

// The models that the names of a trace stand for, in their order: rows without a name take them in turn.
class TraceWorkload final : public Workload {
 public:
  // `model_len`: the longest sequence of each model; longer requests are cut, and counted.
  TraceWorkload(std::vector<TraceRow> rows, std::vector<uint32_t> model_len);
  std::optional<Arrival> next() override;

  // The distinct names of a trace, ascending; empty if it has none.
  static std::vector<std::string> names_of(const std::vector<TraceRow>& rows);
  uint64_t cut() const { return cut_; }

 private:
  const std::vector<TraceRow> rows_;
  const std::vector<uint32_t> model_len_;
  std::vector<std::string> names_;
  size_t at_ = 0;
  uint64_t cut_ = 0;
};

struct SyntheticSpec {
  double requests_per_second = 1;   // over all models
  double cv = 1;                    // coefficient of variation of the gaps: 1 is Poisson
  double zipf = 0;                  // share of the k-th model goes with k^-zipf; 0: all alike
  double duration_seconds = 60;
  uint64_t seed = 1;
  // Drawn from, with replacement; or, if empty, lognormal with these means and a deviation of the logarithm of `spread`.
  std::vector<Lengths> lengths;
  double input_mean = 700, output_mean = 300, spread = 0.8;
  // Of the means, those of each model are so many times as large; empty: all alike.
  std::vector<double> input_times, output_times;
  bool told = true;                 // a client asks for as many tokens as it gets; else for any number, and the answer ends by itself
};

class SyntheticWorkload final : public Workload {
 public:
  SyntheticWorkload(SyntheticSpec spec, std::vector<uint32_t> model_len);
  std::optional<Arrival> next() override;

 private:
  Lengths draw_lengths(uint32_t model);
  uint32_t draw_model();

  const SyntheticSpec spec_;
  const std::vector<uint32_t> model_len_;
  std::vector<double> weights_;  // cumulative, up to 1
  Rng rng_;
  double when_ = 0;
  uint64_t made_ = 0;
};

}  // namespace shoal
