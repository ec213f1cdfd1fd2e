#include "formats/config_checks.h"

#include <algorithm>
#include <cmath>

#include "nlohmann/json.hpp"

namespace shoal {
namespace {

bool is_positive(double value) { return std::isfinite(value) && value > 0; }

Status check_rope(const RopeConfig& rope, uint32_t head_dim) {
  if (rope.dims == 0 || rope.dims % 2 != 0 || rope.dims > head_dim) {
    return invalid_argument("the rotary dimensions (", rope.dims, ") are not an even part of the head's ", head_dim);
  }
  if (!is_positive(rope.theta) || rope.theta < 1.0) return invalid_argument("'rope_theta' is not a number of at least 1");
  if (!is_positive(rope.factor) || rope.factor > 1e6) return invalid_argument("the rope 'factor' is not a positive number");
  if (rope.attention_factor && !is_positive(*rope.attention_factor)) {
    return invalid_argument("the rope 'attention_factor' is not a positive number");
  }
  if (!std::isfinite(rope.mscale) || !std::isfinite(rope.mscale_all_dim)) return invalid_argument("the rope 'mscale' is not a number");
  if (rope.scaling != RopeScaling::kNone && rope.scaling != RopeScaling::kLinear && rope.scaling != RopeScaling::kProportional && rope.original_context == 0) {
    return invalid_argument("the rope scaling needs 'original_max_position_embeddings'");
  }
  if (!is_positive(rope.low_freq_factor) || !is_positive(rope.high_freq_factor) ||
      (rope.scaling == RopeScaling::kLlama3 && rope.high_freq_factor <= rope.low_freq_factor)) {
    return invalid_argument("'low_freq_factor' and 'high_freq_factor' are not an ascending pair of positive numbers");
  }
  if (!is_positive(rope.beta_fast) || !is_positive(rope.beta_slow)) {
    return invalid_argument("'beta_fast' and 'beta_slow' are not positive numbers");
  }
  if (rope.scaling != RopeScaling::kLongRope) return OkStatus();
  for (const auto* factors : {&rope.short_factor, &rope.long_factor}) {
    if (factors->size() != rope.dims / 2) {
      return invalid_argument("a longrope factor list has ", factors->size(), " entries and not ", rope.dims / 2);
    }
    for (float factor : *factors) {
      if (!is_positive(factor)) return invalid_argument("a longrope factor is not a positive number");
    }
  }
  return OkStatus();
}

Status check_experts(const ExpertConfig& e, const ModelConfig& config) {
  if (e.used > e.count + e.zero) return invalid_argument(e.used, " experts are to be chosen of ", e.count + e.zero);
  if (e.zero > 0 && e.groups > 1) return unimplemented("experts that give back what they are given, in groups, are not served");
  if (e.layers.size() != config.layers) return invalid_argument("which layers have experts is said for ", e.layers.size(), " of ", config.layers);
  if (e.groups == 0 || e.count % e.groups != 0) return invalid_argument(e.count, " experts are not ", e.groups, " equal groups");
  if (e.groups_used == 0 || e.groups_used > e.groups || uint64_t{e.groups_used} * (e.count / e.groups) < e.used) {
    return invalid_argument("the ", e.groups_used, " groups that experts are chosen from do not hold ", e.used);
  }
  for (double gate : {e.gate_alpha, e.gate_limit}) {
    if (!std::isfinite(gate) || gate < 0) return invalid_argument("'swiglu_alpha' or 'swiglu_limit' is not a positive number");
  }
  if (!is_positive(e.weight_scale)) return invalid_argument("the scale of expert weights is not a positive number");
  if (!std::isfinite(e.sum_min) || e.sum_min < 0) return invalid_argument("the least sum of expert weights is not a number");
  return OkStatus();
}

Status check_shapes(const ModelConfig& config) {
  for (uint32_t i = 0; i < config.layers; ++i) {
    const HeadShape heads = config.heads_of(i);
    if (heads.heads == 0 || heads.kv_heads == 0 || heads.head_dim == 0 || heads.value_dim == 0) return invalid_argument("layer ", i, " has no heads");
    if (heads.heads % heads.kv_heads != 0) return invalid_argument(heads.heads, " attention heads of layer ", i, " cannot share ", heads.kv_heads, " key-value heads");
    if (uint64_t{heads.heads} * std::max(heads.head_dim, heads.value_dim) > kHiddenMax) {
      return invalid_argument(heads.heads, " heads of ", heads.head_dim, " dimensions are above the limit of ", kHiddenMax);
    }
    const RopeConfig& rope = config.local_rope && config.sliding_layers[i] ? *config.local_rope : config.rope;
    if (config.turns(i) && rope.dims > heads.head_dim) return invalid_argument("the rotary dimensions (", rope.dims, ") are more than the ", heads.head_dim, " of a head of layer ", i);
    const uint32_t source = config.kv_source_of(i);
    if (source > i) return invalid_argument("layer ", i, " is to read keys and values of layer ", source, ", which comes later");
    const HeadShape read = config.heads_of(source);
    if (read.kv_heads != heads.kv_heads || read.head_dim != heads.head_dim || config.kv_source_of(source) != source) {
      return invalid_argument("layer ", i, " cannot read the keys and values of layer ", source);
    }
  }
  return OkStatus();
}

Status check_index(const IndexConfig& index, const ModelConfig& config) {
  if (config.latent->query_rank == 0) return unimplemented("an index without compressed queries ('q_lora_rank') is not served");
  if (config.rope.dims > index.dim) return invalid_argument("the index has ", index.dim, " dimensions, fewer than the ", config.rope.dims, " that turn");
  if (index.layers.size() != config.layers || !index.layers.front()) return invalid_argument("the first layer has no index of its own ('indexer_types')");
  return OkStatus();
}

Status check_recurrent(const RecurrentConfig& r, const ModelConfig& config) {
  if (r.layers.size() != config.layers) return invalid_argument("which layers keep a state is said for ", r.layers.size(), " of ", config.layers);
  if (r.kind == RecurrentKind::kShortConvolution) return OkStatus();
  if (r.heads == 0 || r.key_heads == 0 || r.key_dim == 0 || r.value_dim == 0) return invalid_argument("the recurrence has no heads");
  if (r.heads % r.key_heads != 0) return invalid_argument(r.heads, " heads of the recurrence cannot share ", r.key_heads, " key heads");
  const uint64_t width = 2 * uint64_t{r.key_heads} * r.key_dim + 2 * uint64_t{r.heads} * r.value_dim + 2 * uint64_t{r.heads};
  if (width > kHiddenMax) return invalid_argument("a recurrence of ", r.heads, " heads of ", r.key_dim, " by ", r.value_dim, " is above the limit of ", kHiddenMax);
  return OkStatus();
}

}  // namespace

StatusOr<uint32_t> config_uint(const Json& json, std::string_view key, std::optional<uint32_t> fallback, uint32_t min,
                               uint32_t max) {
  const auto field = json.find(std::string(key));
  if ((field == json.end() || field->is_null()) && !fallback) {
    return invalid_argument("'", std::string(key), "' is missing");
  }
  ASSIGN_OR_RETURN(const int64_t value, json_int(json, key, fallback.value_or(min), min, max));
  return static_cast<uint32_t>(value);
}

Status check_config(const ModelConfig& config) {
  if (config.heads % config.kv_heads != 0) {
    return invalid_argument(config.heads, " attention heads cannot share ", config.kv_heads, " key-value heads");
  }
  if (uint64_t{config.heads} * config.head_dim > kHiddenMax) {
    return invalid_argument(config.heads, " heads of ", config.head_dim, " dimensions are above the limit of ", kHiddenMax);
  }
  if (!config.shapes.heads.empty()) RETURN_IF_ERROR(check_shapes(config));
  if (!is_positive(config.queries.value_scale)) return invalid_argument("the scale of values is not a positive number");
  if (!is_positive(config.norm_eps) || config.norm_eps > 1) return invalid_argument("'rms_norm_eps' is not a small positive number");
  if (!is_positive(config.queries.scale)) return invalid_argument("the scale of attention is not a positive number");
  for (double scale : {config.scales.embedding, config.scales.residual, config.scales.logits}) {
    if (!is_positive(scale)) return invalid_argument("a scale of embeddings, residuals or logits is not a positive number");
  }
  if (config.queries.growth && (!std::isfinite(config.queries.growth->factor) || config.queries.growth->factor < 0 || config.queries.growth->tokens == 0)) {
    return invalid_argument("the growth of queries with their position is not a positive number");
  }
  for (double cap : {config.queries.softcap, config.scales.softcap}) {
    if (!std::isfinite(cap) || cap < 0) return invalid_argument("a soft cap is not a positive number");
  }
  uint32_t widest = config.head_dim;
  for (const HeadShape& heads : config.shapes.heads) widest = std::max(widest, heads.head_dim);
  RETURN_IF_ERROR(check_rope(config.rope, widest));
  if (config.local_rope) RETURN_IF_ERROR(check_rope(*config.local_rope, widest));
  if (config.latent && config.latent->rank + config.rope.dims > kLatentMax) {
    return unimplemented("keys of ", config.latent->rank, " and ", config.rope.dims, " dimensions are above the limit of ", kLatentMax);
  }
  if (config.latent && config.latent->index) RETURN_IF_ERROR(check_index(*config.latent->index, config));
  if (config.recurrent) RETURN_IF_ERROR(check_recurrent(*config.recurrent, config));
  if (config.experts) RETURN_IF_ERROR(check_experts(*config.experts, config));
  return OkStatus();
}

}  // namespace shoal
