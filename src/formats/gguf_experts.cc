#include "formats/gguf_experts.h"

namespace shoal {
namespace {

constexpr uint32_t kWidthMax = 1u << 20;
constexpr uint32_t kSoftmax = 1, kSigmoid = 2;  // of expert_gating_func

// What files of older converters leave unsaid.
void set_defaults(ModelConfig& config) {
  ExpertConfig& e = *config.experts;
  switch (config.architecture) {
    case Architecture::kLlama: case Architecture::kQwen3Moe: case Architecture::kHunyuanMoe: e.normalize = true; return;
    case Architecture::kQwen2Moe: e.shared_gate = true; return;
    case Architecture::kQwen3Next: case Architecture::kQwen35Moe: e.shared_gate = e.normalize = true; return;
    case Architecture::kGraniteHybrid: e.softmax_of_chosen = true; return;
    case Architecture::kDeepseekV32: case Architecture::kGlmMoeDsa: case Architecture::kNemotronHMoe: case Architecture::kLfm2Moe: case Architecture::kKimiLinear:
      e.sigmoid_scores = e.selection_bias = e.normalize = e.group_by_best_two = true;
      return;
    case Architecture::kErnie45Moe:
      e.normalize = e.selection_bias = true;
      e.sum_min = 1e-12;
      return;
    case Architecture::kLlama4: e.sigmoid_scores = e.weigh_input = true; return;
    case Architecture::kGptOss:
      e.softmax_of_chosen = e.router_bias = e.biases = true;
      e.gate_alpha = 1.702;
      e.gate_limit = 7.0;
      return;
    case Architecture::kGemma4: e.normalize = e.weight_scales = true; return;
    case Architecture::kMiniMaxM2: case Architecture::kMiMoV2: e.sigmoid_scores = e.selection_bias = e.normalize = true; return;
    case Architecture::kGlm4Moe: e.sigmoid_scores = e.selection_bias = e.normalize = e.group_by_best_two = true; return;
    default: return;
  }
}

bool always_shared(Architecture a) { return a == Architecture::kQwen2Moe || a == Architecture::kLlama4; }

}  // namespace

Status parse_gguf_experts(const GgufFields& fields, const std::set<uint32_t>& routers, ModelConfig& config) {
  ASSIGN_OR_RETURN(const uint32_t count, fields.uint("expert_count", 0, 0, kExpertsMax));
  if (count == 0) return OkStatus();
  ExpertConfig& e = config.experts.emplace();
  e.count = count;
  set_defaults(config);
  ASSIGN_OR_RETURN(e.used, fields.uint("expert_used_count", std::nullopt, 1, kExpertsMax));
  ASSIGN_OR_RETURN(e.intermediate_size, fields.uint("expert_feed_forward_length", config.intermediate_size, 1, kWidthMax));
  ASSIGN_OR_RETURN(const uint32_t shared, fields.uint("expert_shared_count", always_shared(config.architecture) ? 1 : 0, 0, 1024));
  if (uint64_t{shared} * e.intermediate_size > kWidthMax) return invalid_argument("'expert_shared_count' of that width is above the limit of ", kWidthMax);
  ASSIGN_OR_RETURN(e.shared_intermediate_size, fields.uint("expert_shared_feed_forward_length", shared * e.intermediate_size, 0, kWidthMax));
  ASSIGN_OR_RETURN(const uint32_t scores, fields.uint("expert_gating_func", e.sigmoid_scores ? kSigmoid : kSoftmax, kSoftmax, kSigmoid));
  e.sigmoid_scores = scores == kSigmoid;
  if (config.architecture == Architecture::kDeepseekV2) e.selection_bias = e.group_by_best_two = e.sigmoid_scores;  // V3 and after
  ASSIGN_OR_RETURN(e.normalize, fields.boolean("expert_weights_norm", e.normalize));
  ASSIGN_OR_RETURN(e.weight_scale, fields.number("expert_weights_scale", 1.0));
  if (e.weight_scale == 0) e.weight_scale = 1.0;  // how some files say none
  ASSIGN_OR_RETURN(e.groups, fields.uint("expert_group_count", 1, 1, kExpertsMax));
  ASSIGN_OR_RETURN(e.groups_used, fields.uint("expert_group_used_count", 1, 1, kExpertsMax));
  ASSIGN_OR_RETURN(const uint32_t dense, fields.uint("leading_dense_block_count", 0, 0, kLayersMax));
  e.layers.resize(config.layers);
  ASSIGN_OR_RETURN(const uint32_t step, fields.uint("interleave_moe_layer_step", 1, 1, kLayersMax));
  for (uint32_t i = 0; i < config.layers; ++i) e.layers[i] = i >= dense && (i + 1) % step == 0;
  if (config.architecture == Architecture::kMiMoV2 || config.architecture == Architecture::kNemotronHMoe) {
    for (uint32_t i = 0; i < config.layers; ++i) e.layers[i] = routers.contains(i);
  }
  return OkStatus();
}

}  // namespace shoal
