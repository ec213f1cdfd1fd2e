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
// x: [routed rows, columns], already gathered; scratch: [routed rows, columns / 32] if any matrix is quantised.
void expert_linear(const Kernels& kernels, ThreadPool& threads, const ExpertRoutes& routes, const float* x, QuantBlock* scratch, std::span<const ExpertOutput> outputs);

// sum[row] += the weighted sum of its experts' outputs [routed rows, width], in the order of expert_router.h.
void add_experts(const Kernels& kernels, ThreadPool& threads, const ExpertRoutes& routes, uint32_t experts, uint32_t used, const float* outputs,
                 size_t width, uint32_t rows, float* sum);

}  // namespace shoal
