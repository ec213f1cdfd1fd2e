#include "formats/gguf_names.h"

#include <array>
#include <cstring>
#include <span>
#include <string_view>

#include "formats/gguf_encoders.h"

namespace shoal {
namespace {

struct NamePair {
  const char* gguf;
  const char* hf;
};
constexpr NamePair kTopNames[] = {{"token_embd.", "model.embed_tokens."}, {"output_norm.", "model.norm."}, {"output.", "lm_head."}, {"token_embd_norm.", "model.norm."},
                                  {"per_layer_token_embd.", "model.embed_tokens_per_layer."},
                                  {"per_layer_model_proj.", "model.per_layer_model_projection."},
                                  {"per_layer_proj_norm.", "model.per_layer_projection_norm."}};
constexpr NamePair kGemmaNames[] = {{"ffn_norm.", "pre_feedforward_layernorm."},
                                    {"post_attention_norm.", "post_attention_layernorm."},
                                    {"post_ffw_norm.", "post_feedforward_layernorm."}};
constexpr NamePair kGemma4Names[] = {{"ffn_norm.", "pre_feedforward_layernorm."},
                                     {"post_attention_norm.", "post_attention_layernorm."},
                                     {"post_ffw_norm.", "post_feedforward_layernorm."},
                                     {"post_ffw_norm_1.", "post_feedforward_layernorm_1."},
                                     {"post_ffw_norm_2.", "post_feedforward_layernorm_2."},
                                     {"pre_ffw_norm_2.", "pre_feedforward_layernorm_2."},
                                     {"layer_output_scale.weight", "layer_scalar"},
                                     {"inp_gate.", "per_layer_input_gate."},
                                     {"proj.", "per_layer_projection."},
                                     {"post_norm.", "post_per_layer_input_norm."},
                                     {"ffn_gate_inp.scale", "mlp.gate.scale"},
                                     {"ffn_down_exps.scale", "mlp.gate.per_expert_scale"},
                                     {"ffn_gate_up_exps.weight", "mlp.experts.gate_up_proj"}};
constexpr NamePair kQwenNextNames[] = {{"post_attention_norm.", "post_attention_layernorm."}, {"attn_qkv.", "linear_attn.in_proj_qkv."},
                                       {"attn_gate.", "linear_attn.in_proj_z."},                 {"ssm_ba.", "linear_attn.in_proj_ba."},
                                       {"ssm_alpha.", "linear_attn.in_proj_a."},                 {"ssm_beta.", "linear_attn.in_proj_b."},
                                       {"ssm_conv1d.", "linear_attn.conv1d."},                   {"ssm_dt.bias", "linear_attn.dt_bias"},
                                       {"ssm_a", "linear_attn.A_log"},                           {"ssm_norm.", "linear_attn.norm."},
                                       {"ssm_out.", "linear_attn.out_proj."}};
constexpr NamePair kMambaNames[] = {{"ssm_in.", "mamba.in_proj."}, {"ssm_conv1d.", "mamba.conv1d."}, {"ssm_dt.bias", "mamba.dt_bias"},
                                    {"ssm_a", "mamba.A_log"},      {"ssm_d", "mamba.D"},             {"ssm_norm.", "mamba.norm."},
                                    {"ssm_out.", "mamba.out_proj."}};
constexpr NamePair kLfm2Names[] = {{"shortconv.", "conv."}};
constexpr NamePair kKimiNames[] = {{"ssm_conv1d_q.", "self_attn.q_conv1d."}, {"ssm_conv1d_k.", "self_attn.k_conv1d."}, {"ssm_conv1d_v.", "self_attn.v_conv1d."},
                                   {"ssm_a", "self_attn.A_log"},             {"ssm_beta.", "self_attn.b_proj."},       {"ssm_dt.bias", "self_attn.dt_bias"},
                                   {"ssm_f_a.", "self_attn.f_a_proj."},      {"ssm_f_b.", "self_attn.f_b_proj."},      {"ssm_g_a.", "self_attn.g_a_proj."},
                                   {"ssm_g_b.", "self_attn.g_b_proj."},      {"ssm_norm.", "self_attn.o_norm."}};
constexpr NamePair kPostNormNames[] = {{"post_attention_norm.", "post_attention_layernorm."},
                                       {"post_ffw_norm.", "post_feedforward_layernorm."}};
constexpr NamePair kGlm4Names[] = {{"ffn_norm.", "pre_feedforward_layernorm."},
                                   {"post_attention_norm.", "post_attention_layernorm."},
                                   {"post_ffw_norm.", "post_feedforward_layernorm."},
                                   {"ffn_up.", "mlp.gate_up_proj."}};
constexpr NamePair kPhi3Names[] = {{"ffn_up.", "mlp.gate_up_proj."}};
constexpr NamePair kExpertNames[] = {{"ffn_gate_inp.", "mlp.gate."},
                                     {"exp_probs_b.bias", "mlp.gate.e_score_correction_bias"},
                                     {"ffn_gate_exps.", "mlp.experts.gate_proj."},
                                     {"ffn_up_exps.", "mlp.experts.up_proj."},
                                     {"ffn_down_exps.", "mlp.experts.down_proj."},
                                     {"ffn_gate_inp_shexp.", "mlp.shared_expert_gate."},
                                     {"ffn_gate_shexp.", "mlp.shared_expert.gate_proj."},
                                     {"ffn_up_shexp.", "mlp.shared_expert.up_proj."},
                                     {"ffn_down_shexp.", "mlp.shared_expert.down_proj."}};
constexpr NamePair kLatentNames[] = {{"attn_q_a.", "self_attn.q_a_proj."},     {"attn_q_a_norm.", "self_attn.q_a_layernorm."},
                                     {"attn_q_b.", "self_attn.q_b_proj."},     {"attn_kv_a_mqa.", "self_attn.kv_a_proj_with_mqa."},
                                     {"attn_kv_a_norm.", "self_attn.kv_a_layernorm."}, {"attn_kv_b.", "self_attn.kv_b_proj."},
                                     {"attn_k_b.", "self_attn.k_b_proj."},     {"attn_v_b.", "self_attn.v_b_proj."},
                                     {"indexer.attn_q_b.", "self_attn.indexer.wq_b."}, {"indexer.attn_k.", "self_attn.indexer.wk."},
                                     {"indexer.k_norm.", "self_attn.indexer.k_norm."}, {"indexer.proj.", "self_attn.indexer.weights_proj."}};
constexpr NamePair kGlm4MoeNames[] = {{"post_attention_norm.", "post_attention_layernorm."}, {"attn_sinks.weight", "self_attn.sinks"}};
constexpr NamePair kLayerNames[] = {{"attn_norm.", "input_layernorm."},        {"ffn_norm.", "post_attention_layernorm."},
                                    {"attn_q.", "self_attn.q_proj."},          {"attn_k.", "self_attn.k_proj."},
                                    {"attn_v.", "self_attn.v_proj."},          {"attn_qkv.", "self_attn.qkv_proj."},
                                    {"attn_output.", "self_attn.o_proj."},     {"attn_q_norm.", "self_attn.q_norm."},
                                    {"attn_k_norm.", "self_attn.k_norm."},     {"ffn_gate.", "mlp.gate_proj."},
                                    {"ffn_up.", "mlp.up_proj."},               {"ffn_down.", "mlp.down_proj."}};

// Those that a family uses in a way of its own.
std::span<const NamePair> family_names(Architecture architecture) {
  switch (architecture) {
    case Architecture::kGemma2: case Architecture::kGemma3: return kGemmaNames;
    case Architecture::kGemma4: return kGemma4Names;
    case Architecture::kQwen3Next: case Architecture::kQwen35: case Architecture::kQwen35Moe: return kQwenNextNames;
    case Architecture::kGraniteHybrid: case Architecture::kNemotronH: case Architecture::kNemotronHMoe: case Architecture::kFalconH1: return kMambaNames;
    case Architecture::kLfm2: case Architecture::kLfm2Moe: return kLfm2Names;
    case Architecture::kKimiLinear: return kKimiNames;
    case Architecture::kOlmo2: case Architecture::kExaone4: return kPostNormNames;
    case Architecture::kGlm4: return kGlm4Names;
    case Architecture::kPhi3: return kPhi3Names;
    case Architecture::kGlm4Moe: case Architecture::kSeedOss: case Architecture::kGptOss:
    case Architecture::kMiMoV2:
      return kGlm4MoeNames;
    default: return {};
  }
}

// Replaces the prefix of `name` by its counterpart; false if no pair fits.
bool translate(std::span<const NamePair> pairs, const std::string& name, std::string& out) {
  for (const NamePair& pair : pairs) {
    const std::string_view from = pair.gguf;
    if (name.compare(0, from.size(), from) != 0) continue;
    out += pair.hf + name.substr(from.size());
    return true;
  }
  return false;
}

// Of the tensors of a layer, in the order in which they are tried.
std::array<std::span<const NamePair>, 4> layer_names(Architecture architecture) {
  return {family_names(architecture), kExpertNames, kLatentNames, kLayerNames};
}

}  // namespace

std::string hf_tensor_name(Architecture architecture, const std::string& name) {
  if (architecture == Architecture::kBert || architecture == Architecture::kRoberta) return encoder_tensor_name(architecture, name);
  std::string out;
  if (name.compare(0, 4, "blk.") != 0) return translate(kTopNames, name, out) ? out : name;
  const size_t dot = name.find('.', 4);
  if (dot == std::string::npos) return name;
  const std::string rest = name.substr(dot + 1);
  out = "model.layers." + name.substr(4, dot - 4) + ".";
  if (rest == "ffn_norm") return out + "post_attention_layernorm.weight";  // as some files of Falcon-H1 call it
  for (const auto pairs : layer_names(architecture)) {
    if (translate(pairs, rest, out)) return out;
  }
  return name;
}

std::string gguf_tensor_name(Architecture architecture, const std::string& name) {
  constexpr std::string_view kLayers = "model.layers.";
  std::string layer, rest = name;
  if (const size_t dot = name.find('.', kLayers.size()); name.starts_with(kLayers) && dot != std::string::npos) {
    layer = "blk." + name.substr(kLayers.size(), dot + 1 - kLayers.size());
    rest = name.substr(dot + 1);
  }
  for (const auto pairs : layer.empty() ? std::array<std::span<const NamePair>, 4>{kTopNames} : layer_names(architecture)) {
    for (const NamePair& pair : pairs) {
      if (!rest.starts_with(pair.hf)) continue;
      std::string candidate = layer + pair.gguf + rest.substr(std::strlen(pair.hf));
      if (hf_tensor_name(architecture, candidate) == name) return candidate;
    }
  }
  return name;
}

}  // namespace shoal
