#include "kernels/expert_ops.h"

#include <algorithm>
#include <cstring>

#include "base/bytes.h"
#include "base/check.h"

namespace shoal {
namespace {

constexpr size_t kSumColumns = 1024;    // of the sums of groups at a time: they stay in the first cache

}  // namespace

void ExpertRoutes::assign(std::span<const ExpertChoice> choices, uint32_t used, uint32_t experts) {
  std::vector<uint32_t> next(experts + 1);
  for (const ExpertChoice& choice : choices) ++next[choice.expert + 1];
  active.clear();
  for (uint32_t e = 0; e < experts; ++e) {
    if (next[e + 1] > 0) active.push_back({e, next[e], next[e + 1]});
    next[e + 1] += next[e];
  }
  routed.resize(choices.size());
  slots.resize(choices.size());
  for (size_t i = 0; i < choices.size(); ++i) {
    const uint32_t at = next[choices[i].expert]++;
    routed[at] = {static_cast<uint32_t>(i / used), choices[i].weight};
    slots[i] = at;
  }
}

ExpertInput taken(const ExpertInput& all, const ExpertRoutes& routes, std::span<const ExpertOutput> outputs) {
  bool floats = false, quantized = false;
  for (const ExpertOutput& output : outputs) {
    for (const auto& a : routes.active) (is_quantized(output.matrices[a.expert].matrix.format) ? quantized : floats) = true;
  }
  return {floats ? all.x : nullptr, quantized ? all.quantized : nullptr};
}

void gather_rows(const Kernels& kernels, ThreadPool& threads, const ExpertRoutes& routes, uint32_t used, const float* x, uint64_t columns, bool weigh,
                 const ExpertInput& to) {
  const uint64_t stride = quant_row_stride(columns), written = kernels.quant_pairs ? stride : stride / 2;
  const auto routed = static_cast<uint32_t>(routes.routed.size());
  if (weigh || to.x != nullptr) {
    for_rows(threads, routed, columns, [&](uint32_t i) {
      std::memcpy(to.x + i * columns, x + routes.routed[i].row * columns, columns * sizeof(float));
      if (weigh) kernels.scale(to.x + i * columns, routes.routed[i].weight, columns);
    });
  }
  if (weigh) return quantize_rows(kernels, threads, routed, columns, to);
  if (to.quantized == nullptr) return;
  for_rows(threads, routed / used, columns * 2, [&](uint32_t row) {
    const std::span<const uint32_t> slots = std::span(routes.slots).subspan(uint64_t{row} * used, used);
    QuantBlock* const first = to.quantized + slots.front() * stride;
    kernels.quantize_row(x + row * columns, columns, first);
    for (const uint32_t slot : slots.subspan(1)) std::memcpy(to.quantized + slot * stride, first, written * sizeof(QuantBlock));
  });
}

void quantize_rows(const Kernels& kernels, ThreadPool& threads, uint32_t rows, uint64_t columns, const ExpertInput& input) {
  if (input.quantized == nullptr) return;
  for_rows(threads, rows, columns, [&](uint32_t row) { kernels.quantize_row(input.x + row * columns, columns, input.quantized + row * quant_row_stride(columns)); });
}

void expert_linear(const Kernels& kernels, ThreadPool& threads, const ExpertRoutes& routes, const ExpertInput& input, std::span<const ExpertOutput> outputs) {
  std::vector<Product> products;
  products.reserve(outputs.size() * routes.active.size());
  for (const ExpertOutput& output : outputs) {
    for (const auto& a : routes.active) {
      const LinearOutput& at = output.matrices[a.expert];
      const uint64_t columns = at.matrix.columns, width = at.matrix.rows, first = a.begin;
      products.push_back({{at.matrix, a.rows, input.x == nullptr ? nullptr : input.x + first * columns, columns,
                           input.quantized == nullptr ? nullptr : input.quantized + first * quant_row_stride(columns), output.out + first * width, width, false, {}},
                          at.maker});
    }
  }
  multiply(kernels, threads, products);
}

void add_experts(const Kernels& kernels, ThreadPool& threads, const ExpertRoutes& routes, uint32_t experts, uint32_t used, const float* outputs,
                 size_t width, uint32_t rows, float* sum) {
  std::vector<uint32_t> expert_of(routes.routed.size());
  for (const auto& a : routes.active) std::fill_n(expert_of.begin() + a.begin, a.rows, a.expert);
  const size_t pieces = div_up(width, kSumColumns);
  const auto add_piece = [&](uint32_t row, size_t piece, float* groups) {
    const size_t begin = piece * kSumColumns, count = std::min(kSumColumns, width - begin);
    const auto group = [&](size_t g) { return groups + g * kSumColumns; };
    for (size_t g = 0; g < kExpertGroups; ++g) std::fill_n(group(g), count, 0.0f);
    for (uint32_t i = 0; i < used; ++i) {
      const uint32_t at = routes.slots[uint64_t{row} * used + i];
      kernels.add_scaled(group(expert_group(expert_of[at], experts)), routes.routed[at].weight, outputs + at * width + begin, count);
    }
    for (size_t step = 1; step < kExpertGroups; step *= 2) {
      for (size_t g = 0; g < kExpertGroups; g += 2 * step) kernels.add(group(g), group(g + step), count);
    }
    kernels.add(sum + row * width + begin, group(0), count);
  };
  threads.parallel_for(rows * pieces, [&](size_t task, int worker) {
    add_piece(static_cast<uint32_t>(task / pieces), task % pieces, reinterpret_cast<float*>(threads.scratch(worker).data()));
  });
}

}  // namespace shoal
