#include "formats/model_config.h"

namespace shoal {

const char* architecture_name(Architecture architecture) {
  constexpr const char* kNames[] = {"llama", "mistral", "qwen2", "qwen3", "gemma2", "gemma3", "phi3", "mixtral", "qwen2moe", "qwen3moe", "glm4moe"};
  return kNames[static_cast<size_t>(architecture)];
}

}  // namespace shoal
