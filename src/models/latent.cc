#include "models/latent.h"

#include <cmath>
#include <utility>

namespace shoal {
namespace {

// Of one head, from a projection of keys and one of values, or from rows of both of all heads.
Status plan_head(const ModelConfig& c, WeightLayout& layout, const std::string& at, uint32_t head, LatentPlaces& out) {
  const uint32_t key = out.key_dim, value = out.value_dim, rank = out.rank;
  if (layout.has(at + "k_b_proj.weight")) {
    ASSIGN_OR_RETURN(out.absorb.emplace_back(), layout.matrix({.name = at + "k_b_proj", .outputs = rank, .columns = key, .first_row = head * rank,
                                                               .stored_rows = c.heads * rank, .parts = c.heads}));
    ASSIGN_OR_RETURN(out.values.emplace_back(), layout.matrix({.name = at + "v_b_proj", .outputs = value, .columns = rank, .first_row = head * value,
                                                               .stored_rows = c.heads * value, .parts = c.heads}));
    return OkStatus();
  }
  MatrixSpec part{.name = at + "kv_b_proj", .outputs = rank, .columns = key, .first_row = head * (key + value), .stored_rows = c.heads * (key + value)};
  part.transposed = true;
  ASSIGN_OR_RETURN(out.absorb.emplace_back(), layout.matrix(part));
  part.transposed = false;
  part.outputs = value;
  part.columns = rank;
  part.first_row += key;
  ASSIGN_OR_RETURN(out.values.emplace_back(), layout.matrix(part));
  return OkStatus();
}

StatusOr<LatentBlock::Index> plan_index(const ModelConfig& c, WeightLayout& layout, const std::string& at, uint32_t layer) {
  const IndexConfig& i = *c.latent->index;
  LatentBlock::Index index;
  ASSIGN_OR_RETURN(index.queries, layout.matrix({.name = at + "wq_b", .outputs = i.heads * i.dim, .columns = c.latent->query_rank}));
  ASSIGN_OR_RETURN(index.keys, layout.matrix({.name = at + "wk", .outputs = i.dim, .columns = c.hidden_size}));
  ASSIGN_OR_RETURN(index.weights, layout.matrix({.name = at + "weights_proj", .outputs = i.heads, .columns = c.hidden_size, .exact = true}));
  index.places = {.layer = layer, .heads = i.heads, .dim = i.dim, .top = i.top, .interleaved = i.interleaved};
  index.places.scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(i.dim) * i.heads));  // of queries, and of weights
  ASSIGN_OR_RETURN(index.places.key_norm, layout.vector(at + "k_norm.weight", i.dim));
  ASSIGN_OR_RETURN(index.places.key_bias, layout.vector(at + "k_norm.bias", i.dim));
  return index;
}

}  // namespace

StatusOr<LatentBlock> plan_latent(const ModelConfig& c, WeightLayout& layout, const std::string& at, uint32_t layer) {
  const LatentConfig& latent = *c.latent;
  const uint32_t q_width = c.heads * c.head_dim;
  LatentBlock block;
  if (latent.query_rank > 0) {
    LatentBlock::CompressedQuery& compressed = block.compressed.emplace();
    ASSIGN_OR_RETURN(compressed.down, layout.matrix({.name = at + "q_a_proj", .outputs = latent.query_rank, .columns = c.hidden_size, .bias = c.biases.qkv}));
    ASSIGN_OR_RETURN(compressed.norm, layout.vector(at + "q_a_layernorm.weight", latent.query_rank));
    ASSIGN_OR_RETURN(block.q, layout.matrix({.name = at + "q_b_proj", .outputs = q_width, .columns = latent.query_rank}));
  } else {
    ASSIGN_OR_RETURN(block.q, layout.matrix({.name = at + "q_proj", .outputs = q_width, .columns = c.hidden_size}));
  }
  ASSIGN_OR_RETURN(block.latent, layout.matrix({.name = at + "kv_a_proj_with_mqa", .outputs = latent.rank + c.rope.dims, .columns = c.hidden_size, .bias = c.biases.qkv}));
  ASSIGN_OR_RETURN(block.latent_norm, layout.vector(at + "kv_a_layernorm.weight", latent.rank));
  block.heads.rank = latent.rank;
  block.heads.scale = static_cast<float>(latent.scale);
  block.heads.key_dim = latent.key_dim;
  block.heads.rope_dims = c.rope.dims;
  block.heads.value_dim = latent.value_dim;
  block.heads.turns = latent.turns;
  for (uint32_t head = 0; head < c.heads; ++head) RETURN_IF_ERROR(plan_head(c, layout, at, head, block.heads));
  ASSIGN_OR_RETURN(block.o, layout.matrix({.name = at + "o_proj", .outputs = c.hidden_size, .columns = c.heads * latent.value_dim, .bias = c.biases.output,
                                           .chunk_unit = latent.value_dim}));
  if (c.latent->index && c.latent->index->layers[layer]) {
    ASSIGN_OR_RETURN(block.index, plan_index(c, layout, at + "indexer.", layer));
  }
  return block;
}

void run_latent(const Step& step, const ModelConfig& c, const LatentBlock& a, uint32_t layer, std::vector<KeptRows> also) {
  const StepBuffers& b = step.at();
  if (a.compressed) {
    step.linear(b.h, {{&a.compressed->down, b.latent_a}, {&a.latent, b.k}});
    if (a.index) {
      step.linear(b.h, {{&a.index->keys, b.index_keys}, {&a.index->weights, b.index_weights}});      // [rows, dim], [rows, heads]
      step.linear({b.latent_a, a.compressed->norm, c.norm_eps, b.latent_a}, {{&a.q, b.latent_q}, {&a.index->queries, b.index_queries}});
      step.choose_tokens(a.index->places, c.rope, {b.index_queries, b.index_keys, b.index_weights});
    } else {
      step.linear({b.latent_a, a.compressed->norm, c.norm_eps, b.latent_a}, {{&a.q, b.latent_q}});   // [rows, heads, head_dim]
    }
  } else {
    step.linear(b.h, {{&a.q, b.latent_q}, {&a.latent, b.k}});
  }
  step.latent_keys(a.heads, a.latent_norm, c.norm_eps, c.rope, b.k);                       // [rows, rank + rope.dims]
  step.latent_queries(a.heads, c.rope, b.latent_q, b.q);                                   // [rows, heads, rank + rope.dims]
  if (c.queries.growth) step.grow_queries(layer, b.q, *c.queries.growth);
  AttentionSpec spec = attention_spec(c, layer);
  spec.selected = c.latent->index.has_value();
  attend(step, c, spec, b.k, {}, std::move(also));                                         // attn [rows, heads, rank]
  step.latent_values(a.heads, b.attn, b.latent_q);                                         // [rows, heads, value_dim]
  step.linear(b.latent_q, {{&a.o, b.x, true}});                                            // [rows, hidden]
}

}  // namespace shoal
