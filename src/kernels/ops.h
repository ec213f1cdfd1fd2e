// Operations spread over the threads of a pool. They split outputs only, so results do not depend on how many there are.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "absl/functional/function_ref.h"
#include "device/thread_pool.h"
#include "kernels/kernels.h"

namespace shoal {

// Makes the panels of a matrix that does not lie packed anywhere.
class PanelMaker {
 public:
  virtual ~PanelMaker() = default;
  // Writes panel `panel` to `out`, panel_bytes() long. Called by several threads at once.
  virtual void make(uint32_t panel, std::byte* out) const = 0;
};
// Panels up to this size can be made on the way.
constexpr uint64_t kMadePanelBytesMax = ThreadPool::kScratchBytes / 2;

// One matrix of a group that takes the same input.
struct LinearOutput {
  PackedMatrix matrix;
  float* out;        // [rows, matrix.rows]
  bool add = false;  // to what is in `out`
  // If set, matrix.data is not read: each thread makes the panels it needs in its scratch, and computes the same bits.
  const PanelMaker* maker = nullptr;
};

// Input of a group: f32 always; `scratch` takes the quantised rows if any matrix is quantised.
struct LinearInput {
  using MakeRow = absl::FunctionRef<void(uint32_t row)>;

  const float* x;       // [rows, columns]
  uint32_t rows;
  QuantBlock* scratch;  // [rows][quant_row_stride(columns)]
  // Writes row `row` of x, if it is not there yet: on the thread that quantises it next, while the row is in its cache.
  std::optional<MakeRow> make_row;
};

// out = matrix x input + bias for every output; nothing where there are no rows. REQUIRES: all matrices have the same number of columns;
// at most 8 outputs.
void linear(const Kernels& kernels, ThreadPool& threads, const LinearInput& input, std::span<const LinearOutput> outputs);

// A product whose input is at hand in the form that its matrix takes. `call.stage` is of whoever computes it; `maker` as LinearOutput's.
struct Product {
  LinearCall call;
  const PanelMaker* maker = nullptr;
};
// All of them, split by panels; they have as many rows, maybe none.
void multiply(const Kernels& kernels, ThreadPool& threads, std::span<const Product> products);

// Panels [begin, end) of one product, by the calling thread; `maker` as LinearOutput's.
void compute_panels(const Kernels& kernels, const PanelMaker* maker, const LinearCall& call, size_t begin, size_t end);

// Below this many touched elements a barrier costs more than it saves, and the caller's thread does the work.
constexpr uint64_t kShareElements = 16384;

// Runs body(row) for every row; `width` is about the number of elements that a row touches.
template <typename Body>
void for_rows(ThreadPool& threads, uint32_t rows, uint64_t width, const Body& body) {
  if (rows * width < kShareElements) {
    for (uint32_t row = 0; row < rows; ++row) body(row);
    return;
  }
  threads.parallel_for(rows, [&](size_t row, int) { body(static_cast<uint32_t>(row)); });
}

}  // namespace shoal
