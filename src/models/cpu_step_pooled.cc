// What pooled models need of a step beyond the layers: further embeddings, and one vector of a sequence with a head on it.
#include <cmath>

#include "base/check.h"
#include "kernels/pack.h"
#include "kernels/quant_codes.h"
#include "kernels/ref/math.h"
#include "models/cpu_step.h"
#include "tensor/tensor.h"

namespace shoal {

void CpuStep::add_rows(const EmbeddingPlace& table, std::span<const uint32_t> index, Floats to) const {
  CHECK_EQ(index.size(), size_t{rows()});
  const uint64_t hidden = context_.shape.hidden;
  float* const x = CpuDevice::at(to);
  for_rows(compute_.threads, rows(), hidden * 4, [&](uint32_t row) {
    std::vector<float> added(hidden);
    dequantize_row(table.dtype, weights_.row(table, static_cast<TokenId>(index[row])), 0, hidden, added.data());
    compute_.kernels.add(x + row * hidden, added.data(), hidden);
  });
}

void CpuStep::pool(Floats from, Pooling pooling, const Normed* norm) {
  const uint64_t hidden = context_.shape.hidden;
  const float* const x = CpuDevice::at(from);
  logits_.assign(input_.logits.size() * hidden, 0.0f);
  for_rows(compute_.threads, static_cast<uint32_t>(input_.logits.size()), hidden * 64, [&](uint32_t i) {
    const uint32_t row = input_.logits[i].row, slice = batch_.slice(row);
    const uint32_t first = batch_.begin(slice), count = input_.slices[slice].rows;
    float* const out = logits_.data() + i * hidden;
    if (pooling != Pooling::kMean) {
      const uint32_t chosen = pooling == Pooling::kFirst ? first : row;
      if (norm != nullptr) norm_row(compute_.kernels, weights_, *norm, chosen);
      const float* const vector_of = (norm != nullptr ? CpuDevice::at(norm->out) : x) + chosen * hidden;
      std::copy_n(vector_of, hidden, out);
      return;
    }
    std::vector<double> sum(hidden, 0.0);
    for (uint32_t r = first; r < first + count; ++r) {
      if (norm != nullptr) norm_row(compute_.kernels, weights_, *norm, r);
      const float* const values = (norm != nullptr ? CpuDevice::at(norm->out) : x) + uint64_t{r} * hidden;
      for (uint64_t d = 0; d < hidden; ++d) sum[d] += values[d];
    }
    for (uint64_t d = 0; d < hidden; ++d) out[d] = static_cast<float>(sum[d] / count);
  });
}

void CpuStep::pooled_dense(const VectorPlace& matrix, const VectorPlace* bias, HeadActivation activation) {
  const size_t queries = input_.logits.size();
  if (queries == 0) return;
  const size_t width = logits_.size() / queries, outputs = matrix.size / width;
  const float* const weights = weights_.vector(matrix);
  std::vector<float> made(queries * outputs);
  for_rows(compute_.threads, static_cast<uint32_t>(queries * outputs), width * 2, [&](uint32_t at) {
    const size_t query = at / outputs, output = at % outputs;
    double sum = bias == nullptr ? 0.0 : weights_.vector(*bias)[output];
    for (size_t d = 0; d < width; ++d) sum += double{weights[output * width + d]} * logits_[query * width + d];
    const auto value = static_cast<float>(sum);
    made[at] = activation == HeadActivation::kTanh ? ref::tanh(value) : activation == HeadActivation::kGeluErf ? ref::gelu_erf(value) : value;
  });
  logits_ = std::move(made);
}

void CpuStep::pooled_norm(const VectorPlace& weight, const VectorPlace* bias, double eps) {
  const size_t width = weight.size;
  for (size_t at = 0; at + width <= logits_.size(); at += width) {
    float* const x = logits_.data() + at;
    compute_.kernels.layer_norm(x, weights_.vector(weight), static_cast<float>(eps), width, x);
    if (bias != nullptr) compute_.kernels.add(x, weights_.vector(*bias), width);
  }
}

}  // namespace shoal
