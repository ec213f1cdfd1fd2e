// Products of the rows that are routed to each expert of a layer, and the sum of what the experts give, spread over threads.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "device/thread_pool.h"
#include "kernels/expert_router.h"
#include "kernels/kernels.h"
#include "kernels/ops.h"

namespace shoal {

// Where the rows of a batch go: routed row i is row `row` of the batch for expert `expert` with weight `weight`. Grouped by
// expert, ascending, and within one by row.
struct ExpertRoutes {
  struct Routed {
    uint32_t row;
    float weight;
  };
  struct Active {  // an expert that has rows: routed rows [begin, begin + rows)
    uint32_t expert, begin, rows;
  };
  std::vector<Routed> routed;
  std::vector<Active> active;
  std::vector<uint32_t> slots;  // [rows, used]: routed rows of each row, by ascending expert

  // From the choices [rows, used] of each row, ascending by expert.
  void assign(std::span<const ExpertChoice> choices, uint32_t used, uint32_t experts);
};

// For each active expert one matrix of each output, products of its routed rows: out[routed row] = matrix x input[routed row].
struct ExpertOutput {
  std::span<const LinearOutput> matrices;  // by expert; `out` is ignored
  float* out;                              // [routed rows, matrix.rows]
};

// Inputs of the routed rows, in the forms that matrices take; null: none takes it.
struct ExpertInput {
  float* x = nullptr;               // [routed rows, columns], for float formats
  QuantBlock* quantized = nullptr;  // [routed rows][quant_row_stride(columns)]
};
// `all`, less what none of the active experts' matrices takes.
ExpertInput taken(const ExpertInput& all, const ExpertRoutes& routes, std::span<const ExpertOutput> outputs);
// Gives the routed rows their rows of x [rows, columns], each quantised once; `weigh`: times the routed rows' weights, and `to.x` is written in any case.
void gather_rows(const Kernels& kernels, ThreadPool& threads, const ExpertRoutes& routes, uint32_t used, const float* x, uint64_t columns, bool weigh,
                 const ExpertInput& to);
// Quantises what is in `input.x`, if anybody takes it.
void quantize_rows(const Kernels& kernels, ThreadPool& threads, uint32_t rows, uint64_t columns, const ExpertInput& input);

void expert_linear(const Kernels& kernels, ThreadPool& threads, const ExpertRoutes& routes, const ExpertInput& input, std::span<const ExpertOutput> outputs);

// sum[row] += the weighted sum of its experts' outputs [routed rows, width], in the order of expert_router.h.
void add_experts(const Kernels& kernels, ThreadPool& threads, const ExpertRoutes& routes, uint32_t experts, uint32_t used, const float* outputs,
                 size_t width, uint32_t rows, float* sum);

}  // namespace shoal
