// What GGUF files call tensors, and what Hugging Face checkpoints call the same ones.
#pragma once

#include <string>

#include "formats/model_config.h"

namespace shoal {

// "blk.3.attn_q.weight" -> "model.layers.3.self_attn.q_proj.weight"; names without a counterpart are returned unchanged.
std::string hf_tensor_name(Architecture architecture, const std::string& name);
// The way back, for messages; names that no file of the architecture has under another one, and those of encoders, unchanged.
std::string gguf_tensor_name(Architecture architecture, const std::string& name);

}  // namespace shoal
