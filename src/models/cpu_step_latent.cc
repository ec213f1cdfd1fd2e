// Latent attention on the host's processor. The projections of heads are products of rows grouped by head, as those of experts are
// grouped by expert.
#include <cstring>

#include "kernels/expert_ops.h"
#include "models/cpu_step.h"

namespace shoal {
namespace {

RopeCall rope_call(const StepBuffers& at, uint64_t half, uint32_t row, float* x, uint32_t heads, uint32_t stride, const RopeConfig& config) {
  return {x, heads, stride, config.dims / 2, CpuDevice::at(at.cos[0]) + row * half, CpuDevice::at(at.sin[0]) + row * half, config.interleaved};
}

}  // namespace


void CpuStep::latent_keys(const LatentPlaces& places, const VectorPlace& norm, double eps, const RopeConfig& config, Floats latents) const {
  const uint32_t width = places.rank + places.rope_dims;
  float* const x = CpuDevice::at(latents);
  for_rows(compute_.threads, rows(), width * 4, [&](uint32_t row) {
    float* const latent = x + uint64_t{row} * width;
    compute_.kernels.rms_norm(latent, weights_.vector(norm), static_cast<float>(eps), places.rank, latent);
    if (places.scale != 1) compute_.kernels.scale(latent, places.scale, places.rank);
    if (places.turns) compute_.kernels.rope(rope_call(at_, context_.shape.rope_half, row, latent + places.rank, 1, places.rope_dims, config));
  });
}

// input and out: [heads, rows, columns or outputs of the head's matrix].
void CpuStep::multiply_by_head(const std::vector<MatrixPlace>& places, const float* input, float* out) const {
  ExpertRoutes routes;
  std::vector<LinearOutput> matrices;
  for (uint32_t head = 0; head < places.size(); ++head) {
    routes.active.push_back({head, head * rows(), rows()});
    matrices.push_back(weights_.output(places[head], nullptr, false));
  }
  routes.routed.resize(places.size() * rows());
  const ExpertOutput product[] = {{matrices, out}};
  expert_linear(compute_.kernels, compute_.threads, routes, input, CpuDevice::at(at_.quantized), product);
}

void CpuStep::latent_queries(const LatentPlaces& places, const RopeConfig& config, Floats from, Floats to) const {
  const auto heads = static_cast<uint32_t>(places.absorb.size());
  const uint64_t in_dim = places.key_dim + places.rope_dims, out_dim = places.rank + places.rope_dims;
  const float* const q = CpuDevice::at(from);
  float* const out = CpuDevice::at(to);
  float* const gathered = CpuDevice::at(at_.by_head[0]);
  float* const absorbed = CpuDevice::at(at_.by_head[1]);
  for_rows(compute_.threads, rows(), heads * in_dim, [&](uint32_t row) {
    for (uint64_t head = 0; head < heads; ++head) {
      std::memcpy(gathered + (head * rows() + row) * places.key_dim, q + (row * uint64_t{heads} + head) * in_dim, places.key_dim * sizeof(float));
    }
  });
  multiply_by_head(places.absorb, gathered, absorbed);
  for_rows(compute_.threads, rows(), heads * out_dim, [&](uint32_t row) {
    float* const at = out + row * heads * out_dim;
    for (uint64_t head = 0; head < heads; ++head) {
      std::memcpy(at + head * out_dim, absorbed + (head * rows() + row) * places.rank, places.rank * sizeof(float));
      std::memcpy(at + head * out_dim + places.rank, q + (row * uint64_t{heads} + head) * in_dim + places.key_dim, places.rope_dims * sizeof(float));
    }
    if (places.turns) compute_.kernels.rope(rope_call(at_, context_.shape.rope_half, row, at + places.rank, heads, static_cast<uint32_t>(out_dim), config));
  });
}

void CpuStep::latent_values(const LatentPlaces& places, Floats from, Floats to) const {
  const uint64_t heads = places.values.size(), rank = places.rank, width = places.value_dim;
  const float* const found = CpuDevice::at(from);
  float* const out = CpuDevice::at(to);
  float* const gathered = CpuDevice::at(at_.by_head[0]);
  float* const values = CpuDevice::at(at_.by_head[1]);
  for_rows(compute_.threads, rows(), heads * rank, [&](uint32_t row) {
    for (uint64_t head = 0; head < heads; ++head) {
      std::memcpy(gathered + (head * rows() + row) * rank, found + (row * heads + head) * rank, rank * sizeof(float));
    }
  });
  multiply_by_head(places.values, gathered, values);
  for_rows(compute_.threads, rows(), heads * width, [&](uint32_t row) {
    for (uint64_t head = 0; head < heads; ++head) {
      std::memcpy(out + (row * heads + head) * width, values + (head * rows() + row) * width, width * sizeof(float));
    }
  });
}

}  // namespace shoal
