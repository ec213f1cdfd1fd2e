// Latent attention on the host's processor. The projections of heads are products of rows that lie apart: nothing is gathered.
#include <algorithm>
#include <cstring>
#include <vector>

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

void CpuStep::multiply_by_head(const std::vector<MatrixPlace>& places, const HeadRows& input, const HeadRows& out) const {
  std::vector<LinearOutput> matrices;
  for (const MatrixPlace& place : places) matrices.push_back(weights_.output(place, nullptr, false));
  const uint64_t columns = matrices.front().matrix.columns, stride = quant_row_stride(columns), heads = places.size();
  QuantBlock* const quantized = CpuDevice::at(at_.quantized);
  if (std::any_of(matrices.begin(), matrices.end(), [](const LinearOutput& at) { return is_quantized(at.matrix.format); })) {
    for_rows(compute_.threads, rows(), heads * columns, [&](uint32_t row) {
      for (uint64_t head = 0; head < heads; ++head) {
        compute_.kernels.quantize_row(input.base + row * input.row + head * input.head, columns, quantized + (head * rows() + row) * stride);
      }
    });
  }
  std::vector<Product> products;
  for (uint64_t head = 0; head < heads; ++head) {
    const LinearOutput& at = matrices[head];
    const QuantBlock* const codes = is_quantized(at.matrix.format) ? quantized + head * rows() * stride : nullptr;
    products.push_back({{at.matrix, rows(), input.base + head * input.head, input.row, codes, out.base + head * out.head, out.row, false, {}}, at.maker});
  }
  shoal::multiply(compute_.kernels, compute_.threads, products);
}

void CpuStep::latent_queries(const LatentPlaces& places, const RopeConfig& config, Floats from, Floats to) const {
  const auto heads = static_cast<uint32_t>(places.absorb.size());
  const uint64_t in_dim = places.key_dim + places.rope_dims, out_dim = places.rank + places.rope_dims;
  float* const q = CpuDevice::at(from);
  float* const out = CpuDevice::at(to);
  multiply_by_head(places.absorb, {q, heads * in_dim, in_dim}, {out, heads * out_dim, out_dim});
  for_rows(compute_.threads, rows(), uint64_t{heads} * places.rope_dims * 4, [&](uint32_t row) {
    float* const at = out + row * heads * out_dim;
    for (uint64_t head = 0; head < heads; ++head) {
      std::memcpy(at + head * out_dim + places.rank, q + (row * uint64_t{heads} + head) * in_dim + places.key_dim, places.rope_dims * sizeof(float));
    }
    if (places.turns) compute_.kernels.rope(rope_call(at_, context_.shape.rope_half, row, at + places.rank, heads, static_cast<uint32_t>(out_dim), config));
  });
}

void CpuStep::latent_values(const LatentPlaces& places, Floats from, Floats to) const {
  const uint64_t heads = places.values.size();
  multiply_by_head(places.values, {CpuDevice::at(from), heads * places.rank, places.rank}, {CpuDevice::at(to), heads * places.value_dim, places.value_dim});
}

}  // namespace shoal
