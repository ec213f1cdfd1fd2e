// The families of transformers that are served, and what their config.json may leave unsaid.
#pragma once

#include "base/json.h"
#include "base/status.h"
#include "formats/model_config.h"

namespace shoal {

// Whether a family has windows, and when they hold.
enum class HfWindows : uint8_t { kNone, kStated, kIfUsed };  // kIfUsed: with use_sliding_window, which is off by default

// A key that is null is one that the family does not have: the default holds.
struct HfFamily {
  const char* name;        // architectures[0]
  const char* model_type;
  Architecture architecture;
  uint32_t vocab_size = 0, heads = 0, kv_heads = 0, head_dim = 0;  // 0: must be stated; as many as heads; hidden size / heads
  uint32_t context_length = 2048;
  const char* norm_eps_key = "rms_norm_eps";
  double norm_eps = 1e-6;
  bool tied = false;
  const char* activation_key = "hidden_act";
  const char* activation = "silu";
  const char* qkv_bias_key = "attention_bias";
  bool qkv_bias = false;
  const char* output_bias_key = "attention_bias";
  const char* mlp_bias_key = "mlp_bias";
  HfWindows windows = HfWindows::kNone;
  uint32_t window = 0;
  double theta = 10000.0;
  double rotary_part = 1.0;
  bool interleaved_rope = false;
};

// Of the class that the config names, or of its model type where it names none. Unimplemented, naming it, if it is not served.
StatusOr<const HfFamily*> find_hf_family(const Json& config);

// The config of the language model: `config` itself, or, of a class with encoders around one, its text_config with what stands
// beside that for all parts.
Json hf_text_config(const Json& config);

}  // namespace shoal
