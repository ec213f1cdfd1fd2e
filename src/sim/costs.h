// What steps, loads and copies cost on devices that nobody here has: fits of measured profiles, and a roofline for the
// pairs of model and device that nobody measured. Numbers only; the profiles come as text.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"
#include "base/time.h"
#include "engine/step.h"
#include "sim/hardware.h"

namespace shoal {

// CSV with the columns name,parameters,weight_bytes,kv_bytes_per_token,max_len. InvalidArgument names the line.
StatusOr<std::vector<ModelShape>> parse_model_shapes(std::string_view csv);

// Seconds of a step: the form of DistServe (appendix A), one set of terms for prompts and one for decodes. A step with
// both reads the weights once.
//   prefill = p0 + p1 * sum(len) + p2 * sum(len^2)        decode = d0 + d1 * sum(context) + d2 * sequences
struct StepCost {
  double prefill_seconds = 0, prefill_token_seconds = 0, prefill_square_seconds = 0;  // p0, p1, p2
  double decode_seconds = 0, decode_context_seconds = 0, decode_sequence_seconds = 0; // d0, d1, d2
  // Where it is no line in the sequences (kernels that take rows by fours compute two as slowly as four): seconds of a step
  // of that many decodes and nothing else, less the context's. Ascending, positive. Between two of them in proportion,
  // before the first like it, beyond the last by d2 more for each.
  std::vector<std::pair<uint32_t, double>> decode_by_sequences;

  Duration of(const StepInput& input) const;
  // Of a step of decodes and nothing else, whose sequences hold `context` tokens together.
  double decodes_seconds(uint32_t sequences, double context) const;
};

// Coefficients x of y = x0 + x1 a + x2 b by least squares with equal weights, none negative.
struct Sample {
  double a = 0, b = 0, y = 0;
};
std::array<double, 3> fit_plane(std::span<const Sample> samples);

// How well a fit explains what it was made of.
struct FitQuality {
  uint32_t points = 0, points_left_out = 0;
  double r2_prefill = 0, r2_decode = 0;
  double error_prefill = 0, error_decode = 0;  // mean absolute, relative
};
struct FittedCost {
  StepCost cost;
  FitQuality quality;
};

// Steps of one model as they were seen on a real device.
class SeenSteps {
 public:
  void add(const StepInput& input, double seconds);
  // To the means: slow steps count, for they come again. Left out is only what took more than three times what a first fit
  // says. FailedPrecondition with fewer than 30 steps with prompts, or of decodes alone.
  StatusOr<FittedCost> fit() const;

 private:
  struct Seen {
    Sample prompts, decodes;  // each with the seconds of the step
  };
  std::vector<Seen> with_prompts_;
  std::vector<Sample> decode_;
};

// Measured costs by model and device.
class CostTable {
 public:
  // CSV with the columns model,gpu,prompt_tokens_per_request,batch_size,prefill_ms,decode_step_ms. Left out are points above
  // 4096 tokens in all (the engine that was measured split such prompts, so its times saturate) and above 100 sequences
  // (where steps of most devices leave the line). Or what to_csv() writes. InvalidArgument names the line.
  static StatusOr<CostTable> fit(std::string_view csv);

  const FittedCost* find(std::string_view model, std::string_view hardware) const;
  const std::map<std::pair<std::string, std::string>, FittedCost>& entries() const { return entries_; }
  void add(const std::string& model, const std::string& hardware, const FittedCost& cost) { entries_[{model, hardware}] = cost; }
  // The coefficients of all entries.
  std::string to_csv() const;

 private:
  static StatusOr<CostTable> read(std::string_view csv);  // what to_csv() writes

  std::map<std::pair<std::string, std::string>, FittedCost> entries_;
};

// Of a step that is bound by arithmetic or by memory, whichever takes longer, at the shares of the data sheet that the
// measured pairs reach (0.5 of the arithmetic, 0.6 of the memory), and `launch_seconds` of everything else.
StepCost roofline(const ModelShape& model, const Hardware& hardware, double launch_seconds = 0.005);

// Steps on a gang (tensor_gang), of what they cost on one device (`alone`; Megatron-LM, section 3): of each term the share that the
// roofline says is arithmetic or reading is divided, the rest (launches, sampling) stays; two all-reduces a layer come on
// top, as rings. Layers and their width are estimated from the parameters. An estimate: nobody measured it here.
StepCost tensor_cost(const ModelShape& model, const Hardware& device, const StepCost& alone, uint32_t degree);

}  // namespace shoal
