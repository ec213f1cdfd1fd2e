#include "formats/hf_families.h"

#include <algorithm>
#include <string_view>

#include "nlohmann/json.hpp"

namespace shoal {
namespace {

using A = Architecture;
constexpr HfWindows kStated = HfWindows::kStated, kIfUsed = HfWindows::kIfUsed;

constexpr HfFamily kFamilies[] = {
    {.name = "LlamaForCausalLM", .model_type = "llama", .architecture = A::kLlama},
    {.name = "MistralForCausalLM", .model_type = "mistral", .architecture = A::kMistral, .windows = kStated},
    {.name = "Qwen2ForCausalLM", .model_type = "qwen2", .architecture = A::kQwen2, .qkv_bias_key = nullptr, .qkv_bias = true,
     .output_bias_key = nullptr, .windows = kIfUsed},
    {.name = "Qwen3ForCausalLM", .model_type = "qwen3", .architecture = A::kQwen3, .windows = kIfUsed},
    {.name = "Gemma2ForCausalLM", .model_type = "gemma2", .architecture = A::kGemma2, .head_dim = 256, .tied = true,
     .activation = "gelu_pytorch_tanh", .windows = kStated, .window = 4096},
    {.name = "Gemma3ForCausalLM", .model_type = "gemma3_text", .architecture = A::kGemma3, .vocab_size = 262'208, .heads = 8, .kv_heads = 4,
     .head_dim = 256, .context_length = 131'072, .tied = true, .activation = "gelu_pytorch_tanh", .windows = kStated, .window = 4096, .theta = 1e6},
    {.name = "Gemma4ForCausalLM", .model_type = "gemma4_text", .architecture = A::kGemma4, .vocab_size = 262'144, .heads = 8, .kv_heads = 4,
     .head_dim = 256, .context_length = 131'072, .tied = true, .activation = "gelu_pytorch_tanh", .mlp_bias_key = nullptr,
     .windows = kStated, .window = 512, .theta = 1e6},
    {.name = "MiMoV2FlashForCausalLM", .model_type = "mimo_v2_flash", .architecture = A::kMiMoV2, .kv_heads = 4, .head_dim = 192,
     .context_length = 131'072, .norm_eps_key = "layernorm_epsilon", .norm_eps = 1e-5, .output_bias_key = nullptr, .mlp_bias_key = nullptr,
     .windows = kStated, .window = 129, .theta = 5e6, .rotary_part = 0.334},
    {.name = "Phi3ForCausalLM", .model_type = "phi3", .architecture = A::kPhi3, .windows = kStated},
    {.name = "MixtralForCausalLM", .model_type = "mixtral", .architecture = A::kMixtral, .windows = kStated},
    {.name = "Qwen2MoeForCausalLM", .model_type = "qwen2_moe", .architecture = A::kQwen2Moe, .qkv_bias_key = nullptr, .qkv_bias = true,
     .output_bias_key = nullptr, .windows = kIfUsed},
    {.name = "Qwen3MoeForCausalLM", .model_type = "qwen3_moe", .architecture = A::kQwen3Moe, .windows = kIfUsed},
    {.name = "Glm4MoeForCausalLM", .model_type = "glm4_moe", .architecture = A::kGlm4Moe, .output_bias_key = nullptr},
    {.name = "OlmoeForCausalLM", .model_type = "olmoe", .architecture = A::kOlmoe, .context_length = 4096, .norm_eps = 1e-5, .mlp_bias_key = nullptr},
    {.name = "Ernie4_5_MoeForCausalLM", .model_type = "ernie4_5_moe", .architecture = A::kErnie45Moe, .kv_heads = 4, .norm_eps = 1e-5,
     .tied = true, .qkv_bias_key = "use_bias", .output_bias_key = "use_bias", .mlp_bias_key = "use_bias", .theta = 5e5, .interleaved_rope = true},
    {.name = "HunYuanMoEV1ForCausalLM", .model_type = "hunyuan_v1_moe", .architecture = A::kHunyuanMoe, .norm_eps = 1e-5, .mlp_bias_key = nullptr},
    {.name = "MiniMaxM2ForCausalLM", .model_type = "minimax_m2", .architecture = A::kMiniMaxM2, .qkv_bias_key = nullptr,
     .output_bias_key = nullptr, .mlp_bias_key = nullptr, .theta = 5e6},
    {.name = "GptOssForCausalLM", .model_type = "gpt_oss", .architecture = A::kGptOss, .kv_heads = 8, .head_dim = 64, .context_length = 131'072,
     .norm_eps = 1e-5, .qkv_bias = true, .mlp_bias_key = nullptr, .windows = kStated, .window = 128, .theta = 150'000.0},
    {.name = "Llama4ForCausalLM", .model_type = "llama4_text", .architecture = A::kLlama4, .kv_heads = 8, .head_dim = 128,
     .context_length = 131'072, .norm_eps = 1e-5, .mlp_bias_key = nullptr, .theta = 5e5, .interleaved_rope = true},
    {.name = "Mistral4ForCausalLM", .model_type = "mistral4", .architecture = A::kMistral4, .output_bias_key = "attention_bias", .mlp_bias_key = nullptr},
    {.name = "LongcatFlashForCausalLM", .model_type = "longcat_flash", .architecture = A::kLongcatFlash, .context_length = 131'072,
     .norm_eps = 1e-5, .mlp_bias_key = nullptr, .theta = 1e7},
    {.name = "DeepseekV2ForCausalLM", .model_type = "deepseek_v2", .architecture = A::kDeepseekV2, .output_bias_key = nullptr},
    {.name = "DeepseekV3ForCausalLM", .model_type = "deepseek_v3", .architecture = A::kDeepseekV3, .output_bias_key = nullptr},
    {.name = "DeepseekV32ForCausalLM", .model_type = "deepseek_v32", .architecture = A::kDeepseekV32, .output_bias_key = nullptr},
    {.name = "GlmMoeDsaForCausalLM", .model_type = "glm_moe_dsa", .architecture = A::kGlmMoeDsa, .norm_eps = 1e-5, .output_bias_key = nullptr, .theta = 1e6},
    {.name = "Glm4MoeLiteForCausalLM", .model_type = "glm4_moe_lite", .architecture = A::kGlm4MoeLite, .output_bias_key = nullptr},
    {.name = "SeedOssForCausalLM", .model_type = "seed_oss", .architecture = A::kSeedOss, .kv_heads = 8, .head_dim = 128, .qkv_bias = true,
     .output_bias_key = "attention_out_bias"},
    {.name = "SmolLM3ForCausalLM", .model_type = "smollm3", .architecture = A::kSmolLm3, .kv_heads = 4, .tied = true, .windows = kIfUsed, .theta = 2e6},
    {.name = "Ernie4_5ForCausalLM", .model_type = "ernie4_5", .architecture = A::kErnie45, .kv_heads = 2, .head_dim = 128, .norm_eps = 1e-5,
     .tied = true, .qkv_bias_key = "use_bias", .output_bias_key = "use_bias", .mlp_bias_key = "use_bias", .theta = 5e5, .interleaved_rope = true},
    {.name = "GraniteForCausalLM", .model_type = "granite", .architecture = A::kGranite},
    {.name = "GraniteMoeHybridForCausalLM", .model_type = "granitemoehybrid", .architecture = A::kGraniteHybrid, .mlp_bias_key = nullptr},
    {.name = "HunYuanDenseV1ForCausalLM", .model_type = "hunyuan_v1_dense", .architecture = A::kHunyuanDense, .norm_eps = 1e-5, .mlp_bias_key = nullptr},
    {.name = "Ministral3ForCausalLM", .model_type = "ministral3", .architecture = A::kMinistral3, .kv_heads = 8, .head_dim = 128, .norm_eps = 1e-5,
     .qkv_bias_key = nullptr, .output_bias_key = nullptr, .mlp_bias_key = nullptr, .windows = kStated, .theta = 1e6},
    {.name = "Glm4ForCausalLM", .model_type = "glm4", .architecture = A::kGlm4, .kv_heads = 2, .head_dim = 128, .norm_eps = 1.5625e-7,
     .qkv_bias = true, .output_bias_key = nullptr, .mlp_bias_key = nullptr, .rotary_part = 0.5, .interleaved_rope = true},
    {.name = "Qwen3NextForCausalLM", .model_type = "qwen3_next", .architecture = A::kQwen3Next, .kv_heads = 2, .head_dim = 256, .context_length = 32'768,
     .mlp_bias_key = nullptr, .theta = 10000.0, .rotary_part = 0.25},
    {.name = "Qwen3_5ForCausalLM", .model_type = "qwen3_5_text", .architecture = A::kQwen35, .vocab_size = 248'320, .heads = 16, .kv_heads = 4,
     .head_dim = 256, .context_length = 32'768, .mlp_bias_key = nullptr, .rotary_part = 0.25},
    {.name = "Qwen3_5MoeForCausalLM", .model_type = "qwen3_5_moe_text", .architecture = A::kQwen35Moe, .vocab_size = 248'320, .heads = 16, .kv_heads = 2,
     .head_dim = 256, .context_length = 32'768, .mlp_bias_key = nullptr, .rotary_part = 0.25},
    {.name = "NemotronHForCausalLM", .model_type = "nemotron_h", .architecture = A::kNemotronH, .kv_heads = 8, .head_dim = 128, .context_length = 4096,
     .norm_eps_key = "layer_norm_epsilon", .norm_eps = 1e-5, .activation_key = "mlp_hidden_act", .activation = "relu2"},
    {.name = "FalconH1ForCausalLM", .model_type = "falcon_h1", .architecture = A::kFalconH1, .kv_heads = 8, .context_length = 8192, .norm_eps = 1e-5,
     .theta = 1e5},
    {.name = "Lfm2ForCausalLM", .model_type = "lfm2", .architecture = A::kLfm2, .kv_heads = 8, .context_length = 128'000, .norm_eps_key = "norm_eps",
     .norm_eps = 1e-5, .tied = true, .qkv_bias_key = nullptr, .output_bias_key = nullptr, .mlp_bias_key = nullptr, .theta = 1e6},
    {.name = "Lfm2MoeForCausalLM", .model_type = "lfm2_moe", .architecture = A::kLfm2Moe, .kv_heads = 8, .context_length = 128'000, .norm_eps_key = "norm_eps",
     .norm_eps = 1e-5, .tied = true, .qkv_bias_key = nullptr, .output_bias_key = nullptr, .mlp_bias_key = nullptr, .theta = 1e6},
    {.name = "KimiLinearForCausalLM", .model_type = "kimi_linear", .architecture = A::kKimiLinear, .context_length = 2048,
     .norm_eps = 1e-5, .qkv_bias_key = nullptr, .output_bias_key = nullptr, .mlp_bias_key = nullptr},
    {.name = "Olmo2ForCausalLM", .model_type = "olmo2", .architecture = A::kOlmo2, .norm_eps = 1e-5, .mlp_bias_key = nullptr},
    {.name = "Olmo3ForCausalLM", .model_type = "olmo3", .architecture = A::kOlmo3, .norm_eps = 1e-5, .mlp_bias_key = nullptr,
     .windows = kStated, .window = 4096, .theta = 5e5},
    {.name = "Exaone4ForCausalLM", .model_type = "exaone4", .architecture = A::kExaone4, .norm_eps = 1e-5, .qkv_bias_key = nullptr,
     .output_bias_key = nullptr, .mlp_bias_key = nullptr, .windows = kStated, .window = 4096},
    {.name = "Cohere2ForCausalLM", .model_type = "cohere2", .architecture = A::kCohere2, .context_length = 8192, .norm_eps_key = "layer_norm_eps",
     .norm_eps = 1e-5, .tied = true, .mlp_bias_key = nullptr, .windows = kStated, .window = 4096, .interleaved_rope = true},
};

// Classes of a language model with encoders around it. Which language model it is, text_config says.
constexpr std::string_view kAround[] = {"Mistral3ForConditionalGeneration", "Gemma3ForConditionalGeneration", "Llama4ForConditionalGeneration",
                                         "Gemma4ForConditionalGeneration", "Qwen3_5ForConditionalGeneration", "Qwen3_5MoeForConditionalGeneration"};

bool is_around(const Json& architectures) {
  if (!architectures.is_array() || architectures.empty() || !architectures.front().is_string()) return false;
  return std::find(std::begin(kAround), std::end(kAround), architectures.front().get<std::string>()) != std::end(kAround);
}

std::string served() {
  std::string names;
  for (const HfFamily& family : kFamilies) {
    const std::string_view name = family.name;
    absl::StrAppend(&names, names.empty() ? "" : ", ", std::string(name.substr(0, name.find("ForCausalLM"))));
  }
  return names;
}

const HfFamily* by_model_type(std::string_view type) {
  const auto* at = std::find_if(std::begin(kFamilies), std::end(kFamilies), [&](const HfFamily& f) { return type == f.model_type; });
  return at == std::end(kFamilies) ? nullptr : at;
}

}  // namespace

StatusOr<const HfFamily*> find_hf_family(const Json& config) {
  const auto list = config.find("architectures");
  const bool named = list != config.end() && list->is_array() && !list->empty() && list->front().is_string();
  if (!named) {
    ASSIGN_OR_RETURN(const std::string type, json_string(config, "model_type", ""));
    if (type.empty()) return invalid_argument("neither 'architectures' nor 'model_type' says what the model is");
    if (const HfFamily* family = by_model_type(type)) return family;
    return unimplemented("model_type '", type, "' is not served; served are ", served());
  }
  const std::string name = list->front().get<std::string>();
  for (const HfFamily& family : kFamilies) {
    if (name == family.name) return &family;
  }
  if (!is_around(*list)) {
    return unimplemented("architecture '", name, "' is not served; served are ", served());
  }
  ASSIGN_OR_RETURN(const std::string type, json_string(hf_text_config(config), "model_type", ""));
  if (const HfFamily* family = by_model_type(type)) return family;
  return unimplemented("architecture '", name, "' around a language model of type '", type, "' is not served; served are ", served());
}

Json hf_text_config(const Json& config) {
  const auto list = config.find("architectures");
  const auto text = config.find("text_config");
  if (list == config.end() || text == config.end() || !text->is_object() || !is_around(*list)) return config;
  Json result = *text;
  for (const char* shared : {"quantization_config", "tie_word_embeddings", "eos_token_id", "bos_token_id", "pad_token_id"}) {
    if (config.contains(shared) && !result.contains(shared)) result[shared] = config[shared];
  }
  return result;
}

}  // namespace shoal
