#include "formats/model_config.h"

namespace shoal {

const char* architecture_name(Architecture architecture) {
  constexpr const char* kNames[] = {"llama", "mistral", "qwen2", "qwen3", "gemma2", "gemma3", "phi3", "mixtral", "qwen2moe", "qwen3moe", "glm4moe",
                                    "olmoe", "ernie4_5-moe", "hunyuan-moe", "minimax-m2", "gpt-oss", "llama4", "mimo2",
                                    "deepseek2", "deepseek3", "glm4moe-lite", "mistral4", "longcat-flash", "deepseek32", "glm-dsa",
                                    "seed_oss", "smollm3", "ernie4_5", "granite", "granitehybrid", "hunyuan-dense", "mistral3", "glm4", "gemma4",
                                    "olmo2", "olmo3", "exaone4", "cohere2", "bert", "roberta", "modernbert",
                                    "qwen3next", "qwen35", "qwen35moe", "nemotron_h", "nemotron_h_moe", "falcon-h1", "lfm2", "lfm2moe", "kimi-linear"};
  return kNames[static_cast<size_t>(architecture)];
}

const char* pooling_name(Pooling pooling) {
  constexpr const char* kNames[] = {"first token", "mean", "last token"};
  return kNames[static_cast<size_t>(pooling)];
}

void set_family_facts(ModelConfig& config) {
  switch (config.architecture) {
    case Architecture::kQwen3: case Architecture::kQwen3Moe: case Architecture::kGemma3: case Architecture::kGemma4: config.queries.norm = QkNorm::kHeads; return;
    case Architecture::kHunyuanDense: case Architecture::kHunyuanMoe: config.queries.norm = QkNorm::kTurnedHeads; return;
    case Architecture::kOlmo2: case Architecture::kOlmo3: case Architecture::kOlmoe: case Architecture::kMiniMaxM2: config.queries.norm = QkNorm::kWidth; return;
    case Architecture::kGptOss: config.queries.sinks = true; return;
    case Architecture::kMiMoV2: config.queries.sinks = config.queries.sliding_sinks_only = true; return;
    case Architecture::kExaone4:
      config.queries.norm = QkNorm::kHeads;
      if (config.sliding_window > 0) config.shapes.rope_layers = config.sliding_layers;
      return;
    case Architecture::kCohere2:
      config.layer_norm = true;
      config.shapes.rope_layers = config.sliding_layers;
      return;
    default: return;
  }
}

}  // namespace shoal
