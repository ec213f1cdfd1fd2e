#include "formats/hf_names.h"

#include <iterator>
#include <span>
#include <string_view>
#include <vector>

namespace shoal {
namespace {

struct NamePair {
  std::string_view stored, model;
};
// Folders of vectors alone hold the model without its outermost name.
constexpr NamePair kPrefixes[] = {{"layers.", "model.layers."}, {"embed_tokens.", "model.embed_tokens."}, {"norm.", "model.norm."},
                                  {"language_model.model.", "model."}, {"model.language_model.", "model."}, {"language_model.lm_head.", "lm_head."}};
constexpr std::string_view kEncoders[] = {"vision_tower.", "vision_model.", "multi_modal_projector.", "model.vision_tower.", "model.multi_modal_projector.",
                                          "model.embed_vision.", "model.embed_audio.", "model.audio_tower.", "model.visual."};

constexpr NamePair kHunyuan[] = {{".query_layernorm.", ".q_norm."}, {".key_layernorm.", ".k_norm."}};
constexpr NamePair kErnieMoe[] = {{".mlp.moe_statics.e_score", ".mlp.gate.e_score"}};
constexpr NamePair kGemma4[] = {{".router.proj.weight", ".mlp.gate.weight"},
                                {".router.scale", ".mlp.gate.scale"},
                                {".router.per_expert_scale", ".mlp.gate.per_expert_scale"},
                                {".experts.", ".mlp.experts."}};
constexpr NamePair kMiMo[] = {{".self_attn.attention_sink_bias", ".self_attn.sinks"}};
constexpr NamePair kMiniMax[] = {{".block_sparse_moe.e_score_correction_bias", ".block_sparse_moe.gate.e_score_correction_bias"}};
constexpr NamePair kLongcatHalves[] = {{"input_layernorm.", "input_layernorm."},
                                       {"post_attention_layernorm.", "post_attention_layernorm."},
                                       {"self_attn.", "self_attn."},
                                       {"mlps.", "mlp."}};
constexpr NamePair kLongcatRouter[] = {{"mlp.router.classifier.", "mlp.gate."}, {"mlp.router.", "mlp.gate."}};
constexpr NamePair kLlama4[] = {{".feed_forward.", ".mlp."}};
constexpr NamePair kGraniteHybrid[] = {{".shared_mlp.input_linear.", ".mlp.gate_up_proj."},
                                       {".shared_mlp.output_linear.", ".mlp.down_proj."},
                                       {".block_sparse_moe.router.layer.", ".mlp.gate."},
                                       {".block_sparse_moe.input_linear.weight", ".mlp.experts.gate_up_proj"},
                                       {".block_sparse_moe.output_linear.weight", ".mlp.experts.down_proj"}};
constexpr NamePair kKimi[] = {{".block_sparse_moe.shared_experts.", ".mlp.shared_experts."}};
constexpr NamePair kFalconH1[] = {{"model.final_layernorm.", "model.norm."}, {".feed_forward.", ".mlp."}, {".pre_ff_layernorm.", ".post_attention_layernorm."}};
// Each of these is replaced, one after the other.
constexpr NamePair kLfm2[] = {{"model.embedding_norm.", "model.norm."},
                              {".operator_norm.", ".input_layernorm."},
                              {".ffn_norm.", ".post_attention_layernorm."},
                              {".feed_forward.expert_bias", ".mlp.gate.e_score_correction_bias"},
                              {".feed_forward.", ".mlp."},
                              {".w1.", ".gate_proj."},
                              {".w3.", ".up_proj."},
                              {".w2.", ".down_proj."},
                              {".self_attn.q_layernorm.", ".self_attn.q_norm."},
                              {".self_attn.k_layernorm.", ".self_attn.k_norm."},
                              {".self_attn.out_proj.", ".self_attn.o_proj."}};
constexpr NamePair kNemotronH[] = {{"backbone.embeddings.", "model.embed_tokens."},
                                   {"backbone.norm_f.", "model.norm."},
                                   {"backbone.", "model."},
                                   {".mixer.q_proj.", ".self_attn.q_proj."},
                                   {".mixer.k_proj.", ".self_attn.k_proj."},
                                   {".mixer.v_proj.", ".self_attn.v_proj."},
                                   {".mixer.o_proj.", ".self_attn.o_proj."},
                                   {".mixer.up_proj.", ".mlp.up_proj."},
                                   {".mixer.down_proj.", ".mlp.down_proj."},
                                   {".mixer.gate.", ".mlp.gate."},
                                   {".mixer.experts.", ".mlp.experts."},
                                   {".mixer.shared_experts.", ".mlp.shared_experts."},
                                   {".mixer.", ".mamba."}};
constexpr NamePair kGlm4[] = {{".post_self_attn_layernorm.", ".post_attention_layernorm."},
                              {".post_attention_layernorm.", ".pre_feedforward_layernorm."},
                              {".post_mlp_layernorm.", ".post_feedforward_layernorm."}};

constexpr std::string_view kLayers = "model.layers.";

// "model.layers.N.rest".
struct LayerName {
  uint32_t layer;
  std::string rest;
};
std::optional<LayerName> layer_name(const std::string& name) {
  const size_t dot = name.find('.', kLayers.size());
  if (!name.starts_with(kLayers) || dot == std::string::npos || dot - kLayers.size() > 4) return std::nullopt;
  uint32_t layer = 0;
  for (const char c : name.substr(kLayers.size(), dot - kLayers.size())) {
    if (c < '0' || c > '9') return std::nullopt;
    layer = layer * 10 + static_cast<uint32_t>(c - '0');
  }
  return LayerName{layer, name.substr(dot + 1)};
}
std::string of_layer(uint32_t layer) { return std::string(kLayers) + std::to_string(layer) + "."; }

// A layer of LongCat Flash is two of others, of which the first has the experts.
std::string longcat_name(const std::string& name) {
  const std::optional<LayerName> found = layer_name(name);
  if (!found) return name;
  const auto& [layer, rest] = *found;
  for (const NamePair& part : kLongcatHalves) {
    const size_t end = part.stored.size();
    if (!rest.starts_with(part.stored) || rest.size() < end + 2 || rest[end + 1] != '.' || (rest[end] != '0' && rest[end] != '1')) continue;
    return of_layer(2 * layer + static_cast<uint32_t>(rest[end] - '0')) + std::string(part.model) + rest.substr(end + 2);
  }
  for (const NamePair& part : kLongcatRouter) {
    if (rest.starts_with(part.stored)) return of_layer(2 * layer) + std::string(part.model) + rest.substr(part.stored.size());
  }
  return of_layer(2 * layer) + rest;
}

// The one norm of a layer, "model.layers.N.norm.", beside "...mamba.norm.".
void name_nemotron_norm(std::string& name) {
  constexpr std::string_view kNorm = ".norm.";
  const size_t dot = name.find('.', kLayers.size());
  if (name.starts_with(kLayers) && dot != std::string::npos && name.compare(dot, kNorm.size(), kNorm) == 0) name.replace(dot, kNorm.size(), ".input_layernorm.");
}

std::span<const NamePair> names_of(Architecture architecture) {
  switch (architecture) {
    case Architecture::kHunyuanDense: case Architecture::kHunyuanMoe: return kHunyuan;
    case Architecture::kErnie45Moe: return kErnieMoe;
    case Architecture::kLlama4: return kLlama4;
    case Architecture::kGemma4: return kGemma4;
    case Architecture::kMiMoV2: return kMiMo;
    case Architecture::kFalconH1: return kFalconH1;
    case Architecture::kKimiLinear: return kKimi;
    case Architecture::kLfm2: case Architecture::kLfm2Moe: return kLfm2;
    case Architecture::kNemotronH: return kNemotronH;
    case Architecture::kMiniMaxM2: return kMiniMax;
    case Architecture::kGraniteHybrid: return kGraniteHybrid;
    case Architecture::kGlm4: return kGlm4;
    default: return {};
  }
}

// As longcat_name() would have found it: the norms, attention and MLPs of both halves are numbered, and the router is one of both.
std::vector<std::string> longcat_folder_names(const std::string& name) {
  const std::optional<LayerName> found = layer_name(name);
  if (!found) return {name};
  const auto& [layer, rest] = *found;
  const std::string at = of_layer(layer / 2);
  std::vector<std::string> names = {at + rest};
  const bool of_both = rest.starts_with("mlp.experts.") || rest.starts_with("mlp.gate.");
  for (const NamePair& part : kLongcatHalves) {
    if (rest.starts_with(part.model) && !of_both) names.push_back(at + std::string(part.stored) + std::to_string(layer % 2) + "." + rest.substr(part.model.size()));
  }
  for (auto part = std::rbegin(kLongcatRouter); part != std::rend(kLongcatRouter); ++part) {
    const bool scores = rest.find("e_score") != std::string::npos, whole = part->stored == kLongcatRouter[0].stored;
    if (rest.starts_with(part->model) && scores != whole) names.push_back(at + std::string(part->stored) + rest.substr(part->model.size()));
  }
  return names;
}

// Names that may be the folder's, the one that differs most from `name` last.
std::vector<std::string> folder_names(Architecture architecture, const std::string& name) {
  if (architecture == Architecture::kLongcatFlash) return longcat_folder_names(name);
  std::vector<std::string> names = {name};
  const auto replaced = [&](std::string_view model, std::string_view stored) {
    for (size_t i = 0, count = names.size(); i < count; ++i) {
      const size_t at = names[i].find(model);
      if (at == std::string::npos) continue;
      names.push_back(names[i]);
      names.back().replace(at, model.size(), stored);
    }
  };
  if (architecture == Architecture::kNemotronH) replaced(".input_layernorm.", ".norm.");
  const std::span<const NamePair> pairs = names_of(architecture);
  for (auto pair = pairs.rbegin(); pair != pairs.rend(); ++pair) replaced(pair->model, pair->stored);
  return names;
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
  const bool each = architecture == Architecture::kLfm2 || architecture == Architecture::kLfm2Moe || architecture == Architecture::kNemotronH;
  for (const NamePair& pair : names_of(architecture)) {
    const size_t at = result.find(pair.stored);
    if (at == std::string::npos) continue;
    result.replace(at, pair.stored.size(), pair.model);
    if (!each) return result;
  }
  if (architecture == Architecture::kNemotronH) name_nemotron_norm(result);
  return result;
}

std::string folder_tensor_name(Architecture architecture, const std::string& name, const std::string& outer) {
  constexpr std::string_view kModel = "model.";
  std::vector<std::string> names = folder_names(architecture, name);
  while (names.size() > 1 && model_tensor_name(architecture, names.back()) != name) names.pop_back();
  std::string result = names.back();
  const std::string within = outer.ends_with(kModel) ? outer.substr(0, outer.size() - kModel.size()) : outer;
  if (result.starts_with(kModel)) {
    const std::string moved = outer + result.substr(kModel.size());
    if (model_tensor_name(architecture, moved) == name) result = moved;
  } else if (model_tensor_name(architecture, within + result) == name) {
    result = within + result;
  }
  return result;
}

}  // namespace shoal
