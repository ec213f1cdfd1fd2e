// What layers have in place of attention, or beside it, and keep a state for: as weights, and how they are run. Each adds to the
// residual stream what it makes of the layer's normed input h, times `factor`.
#pragma once

#include <optional>
#include <string>

#include "models/blocks.h"

namespace shoal {

// Gated delta net (arXiv 2412.06464) as Qwen3-Next has it.
struct DeltaNet {
  std::optional<MatrixPlace> mixed;          // [key_heads * (q, k, v, z of its heads), hidden], as stored in folders of Qwen3-Next
  std::optional<MatrixPlace> inputs, gate;   // ... or [q, k, v of all heads, hidden] and [z of all heads, hidden]
  std::optional<MatrixPlace> times_betas;    // [key_heads * (b, a of its heads), hidden]
  std::optional<MatrixPlace> times, betas;   // ... or [heads, hidden] each
  ConvolutionPlaces convolution;
  RecurrencePlaces recurrence;
  VectorPlace norm;     // [value_dim]
  MatrixPlace out;      // [hidden, heads * value_dim]
};
StatusOr<DeltaNet> plan_delta_net(const ModelConfig& config, WeightLayout& layout, const std::string& at, uint32_t layer);
void run_delta_net(const Step& step, const ModelConfig& config, const DeltaNet& net);

// Kimi delta attention (arXiv 2510.26692): every channel of the keys has a decay of its own.
struct KimiDelta {
  MatrixPlace q, k, v;                       // [heads * head_dim, hidden]
  ConvolutionPlaces q_convolution, k_convolution, v_convolution;
  MatrixPlace time_down, time_up;            // [head_dim, hidden], [heads * head_dim, head_dim]
  MatrixPlace gate_down, gate_up;            // likewise
  MatrixPlace betas;                         // [heads, hidden]
  RecurrencePlaces recurrence;
  VectorPlace norm;                          // [head_dim]
  MatrixPlace out;                           // [hidden, heads * head_dim]
};
StatusOr<KimiDelta> plan_kimi_delta(const ModelConfig& config, WeightLayout& layout, const std::string& at, uint32_t layer);
void run_kimi_delta(const Step& step, const ModelConfig& config, const KimiDelta& delta);

// Mamba 2 (arXiv 2405.21060).
struct Mamba {
  MatrixPlace gate, inputs, times;           // [inner, hidden], [inner + 2 * groups * state, hidden], [heads, hidden]
  std::vector<ConvolutionPlaces> convolutions;  // of the inputs' channels, stretch by stretch
  RecurrencePlaces recurrence;
  std::optional<VectorPlace> norm;           // [inner], of each group's part; none: only gated
  MatrixPlace out;                           // [hidden, inner]
};
StatusOr<Mamba> plan_mamba(const ModelConfig& config, WeightLayout& layout, const std::string& at, uint32_t layer);
void run_mamba(const Step& step, const ModelConfig& config, const Mamba& mamba, double factor);

// Short convolution of LFM2, gated before and after.
struct ShortConvolution {
  MatrixPlace before, after, inputs;         // [hidden, hidden]
  ConvolutionPlaces convolution;
  MatrixPlace out;                           // [hidden, hidden]
};
StatusOr<ShortConvolution> plan_short_convolution(const ModelConfig& config, WeightLayout& layout, const std::string& at, uint32_t layer);
void run_short_convolution(const Step& step, const ModelConfig& config, const ShortConvolution& block);

}  // namespace shoal
