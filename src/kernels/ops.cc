#include "kernels/ops.h"

#include <algorithm>

#include "base/bytes.h"
#include "base/check.h"

namespace shoal {
namespace {

constexpr size_t kTasksPerThread = 8;  // so that threads end together
constexpr size_t kTogether = 4;        // panels that a single row takes at once

}  // namespace

void linear(const Kernels& kernels, ThreadPool& threads, const LinearInput& input, std::span<const LinearOutput> outputs) {
  const uint64_t columns = outputs.front().matrix.columns;
  bool quantized = false;
  size_t panels = 0;
  for (const LinearOutput& output : outputs) {
    CHECK_EQ(output.matrix.columns, columns);
    quantized |= is_quantized(output.matrix.format);
    panels += output.matrix.panels();
  }
  if (quantized || input.make_row) {
    for_rows(threads, input.rows, columns * (input.make_row ? 4 : 1), [&](uint32_t row) {
      if (input.make_row) (*input.make_row)(row);
      if (quantized) kernels.quantize_row(input.x + row * columns, columns, input.scratch + row * (columns / kQuantBlock));
    });
  }
  const size_t share = panels / (static_cast<size_t>(threads.size()) * kTasksPerThread);
  const size_t each = std::max(kTogether, share / kTogether * kTogether);
  size_t tasks = 0;
  for (const LinearOutput& output : outputs) tasks += div_up(output.matrix.panels(), each);
  threads.parallel_for(tasks, [&](size_t task, int worker) {
    const LinearOutput* output = outputs.data();
    for (; task >= div_up(output->matrix.panels(), each); ++output) task -= div_up(output->matrix.panels(), each);
    const PackedMatrix& matrix = output->matrix;
    const LinearCall call{matrix, input.rows, input.x, columns, input.scratch, output->out, matrix.rows,
                          output->add, threads.scratch(worker)};
    kernels.linear(call, task * each, std::min<size_t>(matrix.panels(), (task + 1) * each));
  });
}

}  // namespace shoal
