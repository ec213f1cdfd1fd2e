#include "formats/hf_names.h"

#include <span>
#include <string_view>

namespace shoal {
namespace {

struct NamePair {
  std::string_view stored, model;
};
// Folders of vectors alone hold the model without its outermost name.
constexpr NamePair kPrefixes[] = {{"layers.", "model.layers."}, {"embed_tokens.", "model.embed_tokens."}, {"norm.", "model.norm."},
                                  {"language_model.model.", "model."}, {"model.language_model.", "model."}, {"language_model.lm_head.", "lm_head."}};
constexpr std::string_view kEncoders[] = {"vision_tower.", "vision_model.", "multi_modal_projector.", "model.vision_tower.", "model.multi_modal_projector."};

constexpr NamePair kHunyuan[] = {{".query_layernorm.", ".q_norm."}, {".key_layernorm.", ".k_norm."}};
constexpr NamePair kErnieMoe[] = {{".mlp.moe_statics.", ".mlp.gate."}};
constexpr NamePair kMiniMax[] = {{".block_sparse_moe.e_score_correction_bias", ".block_sparse_moe.gate.e_score_correction_bias"}};
constexpr NamePair kLongcatHalves[] = {{"input_layernorm.", "input_layernorm."},
                                       {"post_attention_layernorm.", "post_attention_layernorm."},
                                       {"self_attn.", "self_attn."},
                                       {"mlps.", "mlp."}};
constexpr NamePair kLongcatRouter[] = {{"mlp.router.classifier.", "mlp.gate."}, {"mlp.router.", "mlp.gate."}};
constexpr NamePair kLlama4[] = {{".feed_forward.", ".mlp."}};
constexpr NamePair kGraniteHybrid[] = {{".shared_mlp.input_linear.", ".mlp.gate_up_proj."}, {".shared_mlp.output_linear.", ".mlp.down_proj."}};
constexpr NamePair kGlm4[] = {{".post_self_attn_layernorm.", ".post_attention_layernorm."},
                              {".post_attention_layernorm.", ".pre_feedforward_layernorm."},
                              {".post_mlp_layernorm.", ".post_feedforward_layernorm."}};

// A layer of LongCat Flash is two of others, of which the first has the experts.
std::string longcat_name(const std::string& name) {
  constexpr std::string_view kLayers = "model.layers.";
  const size_t dot = name.find('.', kLayers.size());
  if (!name.starts_with(kLayers) || dot == std::string::npos || dot - kLayers.size() > 4) return name;
  uint32_t layer = 0;
  for (const char c : name.substr(kLayers.size(), dot - kLayers.size())) {
    if (c < '0' || c > '9') return name;
    layer = layer * 10 + static_cast<uint32_t>(c - '0');
  }
  const std::string rest = name.substr(dot + 1);
  const auto at = [&](uint32_t half) { return std::string(kLayers) + std::to_string(2 * layer + half) + "."; };
  for (const NamePair& part : kLongcatHalves) {
    const size_t end = part.stored.size();
    if (!rest.starts_with(part.stored) || rest.size() < end + 2 || rest[end + 1] != '.' || (rest[end] != '0' && rest[end] != '1')) continue;
    return at(static_cast<uint32_t>(rest[end] - '0')) + std::string(part.model) + rest.substr(end + 2);
  }
  for (const NamePair& part : kLongcatRouter) {
    if (rest.starts_with(part.stored)) return at(0) + std::string(part.model) + rest.substr(part.stored.size());
  }
  return at(0) + rest;
}

std::span<const NamePair> names_of(Architecture architecture) {
  switch (architecture) {
    case Architecture::kHunyuanDense: case Architecture::kHunyuanMoe: return kHunyuan;
    case Architecture::kErnie45Moe: return kErnieMoe;
    case Architecture::kLlama4: return kLlama4;
    case Architecture::kMiniMaxM2: return kMiniMax;
    case Architecture::kGraniteHybrid: return kGraniteHybrid;
    case Architecture::kGlm4: return kGlm4;
    default: return {};
  }
}

}  // namespace

std::optional<std::string> model_tensor_name(Architecture architecture, const std::string& name) {
  for (const std::string_view encoder : kEncoders) {
    if (name.starts_with(encoder)) return std::nullopt;
  }
  const bool encoder = architecture == Architecture::kBert || architecture == Architecture::kRoberta || architecture == Architecture::kModernBert;
  if (encoder) return name;
  std::string result = name;
  for (const NamePair& prefix : kPrefixes) {
    if (!result.starts_with(prefix.stored)) continue;
    result.replace(0, prefix.stored.size(), prefix.model);
    break;
  }
  if (architecture == Architecture::kLongcatFlash) return longcat_name(result);
  for (const NamePair& pair : names_of(architecture)) {
    const size_t at = result.find(pair.stored);
    if (at == std::string::npos) continue;
    return result.replace(at, pair.stored.size(), pair.model);
  }
  return result;
}

}  // namespace shoal
