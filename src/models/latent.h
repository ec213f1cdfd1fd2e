// Multi-head latent attention (arXiv 2405.04434, section 2.1) as a block: its weights, and how it is run.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "models/blocks.h"

namespace shoal {

struct LatentBlock {
  struct CompressedQuery {
    MatrixPlace down;  // [query_rank, hidden]
    VectorPlace norm;  // [query_rank]
  };
  std::optional<CompressedQuery> compressed;
  MatrixPlace q;         // [heads * head_dim, query_rank or hidden]
  MatrixPlace latent;    // [rank + rope.dims, hidden]
  VectorPlace latent_norm;  // [rank]
  LatentPlaces heads;
  struct Index {
    MatrixPlace queries;  // [heads * dim, query_rank]
    MatrixPlace keys;     // [dim, hidden]
    MatrixPlace weights;  // [heads, hidden]
    IndexPlaces places;
  };
  std::optional<Index> index;  // of a layer that has one of its own
  MatrixPlace o;         // [hidden, heads * value_dim], summed in chunks of whole heads
};

// `at` is "model.layers.N.self_attn.".
StatusOr<LatentBlock> plan_latent(const ModelConfig& config, WeightLayout& layout, const std::string& at, uint32_t layer);
// x += what attention gives for h, the layer's normed input. `also`: as of attend().
void run_latent(const Step& step, const ModelConfig& config, const LatentBlock& block, uint32_t layer, std::vector<KeptRows> also = {});

}  // namespace shoal
