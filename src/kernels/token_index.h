// Which tokens a row attends to where an index chooses them (DeepSeek sparse attention, arXiv 2512.02556).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace shoal {

// scores[t] of the 16 tokens of a block, whose index keys are f32 [dim][16]. Per token: for heads ascending,
// total = fma(max(dot * scale, 0), weight[head], total) from 0, dot = fma along dim ascending from 0.
struct IndexScoresCall {
  const float* keys = nullptr;
  const float* q = nullptr;        // [heads][dim]
  const float* weights = nullptr;  // [heads]
  float scale = 1;
  uint32_t heads = 0, dim = 0;
  float* scores = nullptr;         // [16]
};

// Sets bits [0, scores.size()) of `selected`, 16 to a word: those of the `top` largest scores, of equal ones the first. NaN counts as
// least.
void select_tokens(std::span<const float> scores, uint32_t top, uint16_t* selected);

}  // namespace shoal
