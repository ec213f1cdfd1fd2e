// An index that chooses which tokens a row attends to, on the host's processor: its keys are stored as f32 beside the latents.
#include <algorithm>
#include <cstring>

#include "base/bytes.h"
#include "kernels/token_index.h"
#include "models/cpu_step.h"

namespace shoal {
namespace {

void turn(const Kernels& kernels, const StepBuffers& at, uint64_t half, uint32_t row, float* x, uint32_t heads, const IndexPlaces& p, const RopeConfig& rope) {
  kernels.rope({x, heads, p.dim, rope.dims / 2, CpuDevice::at(at.cos[0]) + row * half, CpuDevice::at(at.sin[0]) + row * half, p.interleaved});
}

}  // namespace

void CpuStep::choose_tokens(const IndexPlaces& p, const RopeConfig& rope, const IndexInput& input) const {
  const KvLayer& layer = context_.kv.layers[p.layer];
  const uint64_t half = context_.shape.rope_half, words = selected_words(context_.shape.context);
  float* const keys = CpuDevice::at(input.keys);
  float* const queries = CpuDevice::at(input.queries);
  const float* const weights = CpuDevice::at(input.weights);
  uint16_t* const selected = CpuDevice::at(at_.selected);
  const Kernels& k = compute_.kernels;
  for_rows(compute_.threads, rows(), (p.heads + 1) * p.dim * 4, [&](uint32_t row) {
    float* const key = keys + row * size_t{p.dim};
    k.layer_norm(key, weights_.vector(p.key_norm), p.key_eps, p.dim, key);
    k.add(key, weights_.vector(p.key_bias), p.dim);
    turn(k, at_, half, row, key, 1, p, rope);
    turn(k, at_, half, row, queries + row * size_t{p.heads} * p.dim, p.heads, p, rope);
    const uint32_t position = batch_.position(row);
    float* const stored = reinterpret_cast<float*>(blocks_[first_block_[batch_.slice(row)] + position / kTokensPerBlock] + layer.index_offset);
    for (uint32_t d = 0; d < p.dim; ++d) stored[d * kKvTokens + position % kTokensPerBlock] = key[d];
  });
  for_rows(compute_.threads, rows(), kShareElements, [&](uint32_t row) {
    const uint32_t tokens = batch_.position(row) + 1, count = static_cast<uint32_t>(div_up(tokens, kKvTokens));
    std::vector<float> scores(count * kKvTokens);
    std::byte* const* const blocks = blocks_.data() + first_block_[batch_.slice(row)];
    for (uint32_t b = 0; b < count && tokens > p.top; ++b) {
      k.index_scores({reinterpret_cast<const float*>(blocks[b] + layer.index_offset), queries + row * size_t{p.heads} * p.dim, weights + row * size_t{p.heads}, p.scale,
                      p.heads, p.dim, scores.data() + b * kKvTokens});
    }
    select_tokens(std::span(scores).first(tokens), p.top, selected + row * words);
  });
}

}  // namespace shoal
