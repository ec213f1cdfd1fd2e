#include "formats/gguf_shapes.h"

#include "formats/hf_shapes.h"

namespace shoal {

bool has_gguf_shapes(Architecture architecture) { return architecture == Architecture::kGemma4 || architecture == Architecture::kMiMoV2; }

Status parse_gguf_shapes(const GgufFields& fields, ModelConfig& c) {
  if (!has_gguf_shapes(c.architecture)) return OkStatus();
  HeadShape full{c.heads, 0, c.head_dim, 0};
  ASSIGN_OR_RETURN(full.value_dim, fields.uint("attention.value_length", full.head_dim, 1, kConfigHeadDimMax));
  HeadShape sliding = full;
  ASSIGN_OR_RETURN(sliding.head_dim, fields.uint("attention.key_length_swa", full.head_dim, 1, kConfigHeadDimMax));
  ASSIGN_OR_RETURN(sliding.value_dim, fields.uint("attention.value_length_swa", full.value_dim, 1, kConfigHeadDimMax));
  ASSIGN_OR_RETURN(const std::vector<uint32_t> kv_heads, fields.uints("attention.head_count_kv", c.layers, c.heads, 1, kHeadsMax));
  for (uint32_t i = 0; i < c.layers; ++i) {
    HeadShape heads = c.sliding_layers[i] ? sliding : full;
    heads.kv_heads = kv_heads[i];
    c.shapes.heads.push_back(heads);
  }
  c.kv_heads = kv_heads.front();
  ASSIGN_OR_RETURN(c.shapes.mlp_width, fields.uints("feed_forward_length", c.layers, std::nullopt, 1, 1u << 20));
  c.intermediate_size = c.shapes.mlp_width.front();
  ASSIGN_OR_RETURN(c.queries.value_scale, fields.number("attention.value_scale", 1.0));
  if (c.architecture != Architecture::kGemma4) return OkStatus();
  for (HeadShape& heads : c.shapes.heads) {
    if (heads.value_dim != heads.head_dim) return unimplemented("'attention.value_length' differs from 'attention.key_length', which is not served for this architecture");
  }
  ASSIGN_OR_RETURN(const uint32_t shared, fields.uint("attention.shared_kv_layers", 0, 0, kLayersMax));
  RETURN_IF_ERROR(share_last_layers(shared, c));
  ASSIGN_OR_RETURN(c.shapes.input_width, fields.uint("embedding_length_per_layer_input", 0, 0, kHiddenMax));
  if (uint64_t{c.shapes.input_width} * c.layers > 1u << 20) return invalid_argument("'embedding_length_per_layer_input' of all layers is above the limit");
  c.shapes.values_from_keys = true;  // where there is no projection of values
  return OkStatus();
}

}  // namespace shoal
