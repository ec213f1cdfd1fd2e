#include "kernels/expert_ops.h"

#include <algorithm>
#include <cstring>

#include "base/bytes.h"
#include "base/check.h"

namespace shoal {
namespace {

constexpr size_t kTasksPerThread = 8;   // so that threads end together
constexpr size_t kTogether = 4;         // panels that a single row takes at once
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

void expert_linear(const Kernels& kernels, ThreadPool& threads, const ExpertRoutes& routes, const float* x, QuantBlock* scratch, std::span<const ExpertOutput> outputs) {
  if (routes.active.empty()) return;
  const auto matrix_of = [](const ExpertOutput& output, const ExpertRoutes::Active& a) -> const LinearOutput& { return output.matrices[a.expert]; };
  const uint64_t columns = matrix_of(outputs.front(), routes.active.front()).matrix.columns;
  bool quantized = false;
  size_t panels = 0;
  for (const ExpertOutput& output : outputs) {
    for (const auto& a : routes.active) {
      const PackedMatrix& matrix = matrix_of(output, a).matrix;
      CHECK_EQ(matrix.columns, columns);
      quantized |= is_quantized(matrix.format);
      panels += matrix.panels();
    }
  }
  if (quantized) {
    for_rows(threads, static_cast<uint32_t>(routes.routed.size()), columns, [&](uint32_t row) {
      kernels.quantize_row(x + row * columns, columns, scratch + row * (columns / kQuantBlock));
    });
  }
  struct Task {
    const ExpertOutput* output;
    const ExpertRoutes::Active* active;
    size_t begin, end;
  };
  const size_t share = panels / (static_cast<size_t>(threads.size()) * kTasksPerThread);
  const size_t each = std::max(kTogether, share / kTogether * kTogether);
  std::vector<Task> tasks;
  for (const ExpertOutput& output : outputs) {
    for (const auto& a : routes.active) {
      const size_t count = matrix_of(output, a).matrix.panels();
      for (size_t begin = 0; begin < count; begin += each) tasks.push_back({&output, &a, begin, std::min(count, begin + each)});
    }
  }
  threads.parallel_for(tasks.size(), [&](size_t i, int worker) {
    const Task& task = tasks[i];
    const LinearOutput& at = matrix_of(*task.output, *task.active);
    const uint64_t first = task.active->begin, width = at.matrix.rows;
    const LinearCall call{at.matrix, task.active->rows, x + first * columns, columns, scratch == nullptr ? nullptr : scratch + first * (columns / kQuantBlock),
                          task.output->out + first * width, width, false, threads.scratch(worker)};
    compute_panels(kernels, at.maker, call, task.begin, task.end);
  });
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
