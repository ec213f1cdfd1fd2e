#include "formats/hf_names.h"

#include <span>
#include <string_view>

namespace shoal {
namespace {

struct NamePair {
  std::string_view stored, model;
};
constexpr NamePair kPrefixes[] = {{"language_model.model.", "model."}, {"model.language_model.", "model."}, {"language_model.lm_head.", "lm_head."}};
constexpr std::string_view kEncoders[] = {"vision_tower.", "multi_modal_projector.", "model.vision_tower.", "model.multi_modal_projector."};

constexpr NamePair kHunyuan[] = {{".query_layernorm.", ".q_norm."}, {".key_layernorm.", ".k_norm."}};
constexpr NamePair kErnieMoe[] = {{".mlp.moe_statics.", ".mlp.gate."}};
constexpr NamePair kMiniMax[] = {{".block_sparse_moe.e_score_correction_bias", ".block_sparse_moe.gate.e_score_correction_bias"}};
constexpr NamePair kGraniteHybrid[] = {{".shared_mlp.input_linear.", ".mlp.gate_up_proj."}, {".shared_mlp.output_linear.", ".mlp.down_proj."}};
constexpr NamePair kGlm4[] = {{".post_self_attn_layernorm.", ".post_attention_layernorm."},
                              {".post_attention_layernorm.", ".pre_feedforward_layernorm."},
                              {".post_mlp_layernorm.", ".post_feedforward_layernorm."}};

std::span<const NamePair> names_of(Architecture architecture) {
  switch (architecture) {
    case Architecture::kHunyuanDense: case Architecture::kHunyuanMoe: return kHunyuan;
    case Architecture::kErnie45Moe: return kErnieMoe;
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
  std::string result = name;
  for (const NamePair& prefix : kPrefixes) {
    if (!result.starts_with(prefix.stored)) continue;
    result.replace(0, prefix.stored.size(), prefix.model);
    break;
  }
  for (const NamePair& pair : names_of(architecture)) {
    const size_t at = result.find(pair.stored);
    if (at == std::string::npos) continue;
    return result.replace(at, pair.stored.size(), pair.model);
  }
  return result;
}

}  // namespace shoal
