// GGUF files of encoders (BERT, RoBERTa), and what files say of the pooling of any model.
#pragma once

#include <string>

#include "base/status.h"
#include "formats/gguf_config.h"

namespace shoal {

// REQUIRES: the architecture is an encoder's.
StatusOr<ModelConfig> parse_gguf_encoder(const GgufMetadata& metadata, const GgufTensorNames& names);

// `pooling_type`, for decoders: sets `pooled` where there is one.
Status parse_gguf_pooling(const GgufMetadata& metadata, ModelConfig& config);

// The names of hf_encoders for an encoder's tensors.
std::string encoder_tensor_name(Architecture architecture, const std::string& name);

}  // namespace shoal
