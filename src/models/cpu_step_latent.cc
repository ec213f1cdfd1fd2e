// Latent attention on the host's processor. The projections of heads are products of rows that lie apart: nothing is gathered.
#include <algorithm>
#include <cstring>
#include <optional>
#include <vector>

#include "models/cpu_step.h"

namespace shoal {
namespace {

constexpr uint32_t kFewRows = 4;
constexpr uint64_t kHeadsPerThread = 4;  // so that threads end together

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

// Of few rows, a thread does all that a head needs: what it reads was written by many, and is brought from their caches by all at once. `after`,
// if there is one, is done last for each row of each head.
void CpuStep::multiply_by_head(const std::vector<MatrixPlace>& places, const HeadRows& input, const HeadRows& out, std::optional<AfterHead> after) const {
  if (rows() == 0) return;
  const uint64_t columns = places.front().matrix.columns, stride = quant_row_stride(columns), heads = places.size();
  QuantBlock* const quantized = CpuDevice::at(at_.quantized);
  const auto quantize = [&](uint32_t row, uint64_t head) {
    if (!is_quantized(places[head].matrix.format)) return;
    compute_.kernels.quantize_row(input.base + row * input.row + head * input.head, columns, quantized + (head * rows() + row) * stride);
  };
  const auto product = [&](uint64_t head) -> Product {
    const LinearOutput at = weights_.output(places[head], nullptr, false);
    const QuantBlock* const codes = is_quantized(at.matrix.format) ? quantized + head * rows() * stride : nullptr;
    return {{at.matrix, rows(), input.base + head * input.head, input.row, codes, out.base + head * out.head, out.row, false, {}}, at.maker};
  };
  if (rows() <= kFewRows && heads >= kHeadsPerThread * static_cast<uint64_t>(compute_.threads.size())) {
    return compute_.threads.parallel_for(heads, [&](size_t head, int worker) {
      Product of_head = product(head);
      of_head.call.stage = compute_.threads.scratch(worker);
      for (uint32_t row = 0; row < rows(); ++row) quantize(row, head);
      compute_panels(compute_.kernels, of_head.maker, of_head.call, 0, of_head.call.weight.panels());
      for (uint32_t row = 0; after && row < rows(); ++row) (*after)(row, head);
    });
  }
  const auto for_heads = [&](const auto& body) {
    for_rows(compute_.threads, rows(), heads * columns, [&](uint32_t row) {
      for (uint64_t head = 0; head < heads; ++head) body(row, head);
    });
  };
  for_heads(quantize);
  std::vector<Product> products;
  for (uint64_t head = 0; head < heads; ++head) products.push_back(product(head));
  shoal::multiply(compute_.kernels, compute_.threads, products);
  if (after) for_heads(*after);
}

void CpuStep::latent_queries(const LatentPlaces& places, const RopeConfig& config, Floats from, Floats to) const {
  const uint64_t heads = places.absorb.size(), in_dim = places.key_dim + places.rope_dims, out_dim = places.rank + places.rope_dims;
  float* const q = CpuDevice::at(from);
  float* const out = CpuDevice::at(to);
  const auto turn = [&](uint32_t row, uint64_t head) {
    float* const turned = out + (row * heads + head) * out_dim + places.rank;
    std::memcpy(turned, q + (row * heads + head) * in_dim + places.key_dim, places.rope_dims * sizeof(float));
    if (places.turns) compute_.kernels.rope(rope_call(at_, context_.shape.rope_half, row, turned, 1, places.rope_dims, config));
  };
  multiply_by_head(places.absorb, {q, heads * in_dim, in_dim}, {out, heads * out_dim, out_dim}, AfterHead(turn));
}

void CpuStep::latent_values(const LatentPlaces& places, Floats from, Floats to) const {
  const uint64_t heads = places.values.size();
  multiply_by_head(places.values, {CpuDevice::at(from), heads * places.rank, places.rank}, {CpuDevice::at(to), heads * places.value_dim, places.value_dim},
                   std::nullopt);
}

}  // namespace shoal
