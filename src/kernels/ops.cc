#include "kernels/ops.h"

#include <algorithm>
#include <vector>

#include "base/bytes.h"
#include "base/check.h"

namespace shoal {
namespace {

constexpr size_t kTasksPerThread = 32;  // so that threads end together; a thread reads its own one after the other
constexpr size_t kTasksOfFew = 8;       // of each thread, where a task would be less than kTogether panels otherwise
constexpr size_t kTogether = 4;         // panels that a single row takes at once

// Panels of a task, where so many are shared among the threads. Of few panels a single row waits for whoever has the last task.
size_t panels_each(size_t panels, uint64_t rows, const ThreadPool& threads) {
  const size_t of_thread = panels / static_cast<size_t>(threads.size());
  if (rows == 1 && of_thread < kTasksOfFew * kTogether) return std::max<size_t>(1, of_thread / kTasksOfFew);
  return std::max(kTogether, of_thread / kTasksPerThread / kTogether * kTogether);
}

// The same call for a part of its matrix's panels, which lie at `data`.
LinearCall part_of(const LinearCall& call, size_t begin, size_t end, const std::byte* data) {
  const size_t first = begin * kPanelRows;
  LinearCall part = call;
  part.weight.data = data;
  part.weight.rows = static_cast<uint32_t>(std::min<size_t>(call.weight.rows, end * kPanelRows) - first);
  if (call.weight.bias != nullptr) part.weight.bias += first;
  part.out += first;
  return part;
}

void make_and_compute(const Kernels& kernels, const PanelMaker& maker, const LinearCall& call, size_t begin, size_t end) {
  const uint64_t bytes = panel_bytes(call.weight.format, call.weight.columns);
  CHECK_LE(bytes, kMadePanelBytesMax);
  const size_t at_once = kMadePanelBytesMax / bytes;
  std::byte* const made = call.stage.data();
  for (size_t first = begin; first < end; first += at_once) {
    const size_t last = std::min(end, first + at_once);
    for (size_t panel = first; panel < last; ++panel) maker.make(static_cast<uint32_t>(panel), made + (panel - first) * bytes);
    LinearCall part = part_of(call, first, last, made);
    part.stage = call.stage.subspan(kMadePanelBytesMax);
    kernels.linear(part, 0, last - first);
  }
}

}  // namespace

void compute_panels(const Kernels& kernels, const PanelMaker* maker, const LinearCall& call, size_t begin, size_t end) {
  if (maker != nullptr) return make_and_compute(kernels, *maker, call, begin, end);
  kernels.linear(call, begin, end);
}

void multiply(const Kernels& kernels, ThreadPool& threads, std::span<const Product> products) {
  if (products.empty() || products.front().call.rows == 0) return;
  size_t panels = 0;
  for (const Product& product : products) panels += product.call.weight.panels();
  const size_t each = panels_each(panels, products.front().call.rows, threads);
  struct Task {
    const Product* product;
    size_t begin, end;
  };
  std::vector<Task> tasks;
  for (const Product& product : products) {
    const size_t count = product.call.weight.panels();
    for (size_t begin = 0; begin < count; begin += each) tasks.push_back({&product, begin, std::min(count, begin + each)});
  }
  threads.parallel_for(tasks.size(), [&](size_t i, int worker) {
    LinearCall call = tasks[i].product->call;
    call.stage = threads.scratch(worker);
    compute_panels(kernels, tasks[i].product->maker, call, tasks[i].begin, tasks[i].end);
  });
}

void linear(const Kernels& kernels, ThreadPool& threads, const LinearInput& input, std::span<const LinearOutput> outputs) {
  if (input.rows == 0) return;
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
      if (quantized) kernels.quantize_row(input.x + row * columns, columns, input.scratch + row * quant_row_stride(columns));
    });
  }
  const size_t each = panels_each(panels, input.rows, threads);
  size_t tasks = 0;
  for (const LinearOutput& output : outputs) tasks += div_up(output.matrix.panels(), each);
  threads.parallel_for(tasks, [&](size_t task, int worker) {
    const LinearOutput* output = outputs.data();
    for (; task >= div_up(output->matrix.panels(), each); ++output) task -= div_up(output->matrix.panels(), each);
    const PackedMatrix& matrix = output->matrix;
    const LinearCall call{matrix, input.rows, input.x, columns, input.scratch, output->out, matrix.rows,
                          output->add, threads.scratch(worker)};
    const size_t begin = task * each, end = std::min<size_t>(matrix.panels(), begin + each);
    compute_panels(kernels, output->maker, call, begin, end);
  });
}

}  // namespace shoal
