// Models that make one vector, or scores, of a text: encoders, decoders that are pooled, and what sentence-transformers' files say
// of them.
#pragma once

#include <string>

#include "base/json.h"
#include "base/status.h"
#include "formats/model_config.h"

namespace shoal {

// Whether config.json is of an encoder's class (BertModel, XLMRobertaForSequenceClassification ...).
bool is_hf_encoder(const Json& config);
StatusOr<ModelConfig> parse_hf_encoder(const Json& config);

// "Qwen3ForCausalLM" of "Qwen3ForSequenceClassification": which decoder it is that a score head stands on. Others are as they are.
Json without_score_head(const Json& config);

// modules.json, the pooling beside it and sentence_bert_config.json of a folder: sets `pooled` and shortens the context. A folder without
// them is what its config.json says. Unimplemented, naming it, for modules and poolings that are not served.
Status read_pooling_files(const std::string& folder, const Json& config_json, ModelConfig& config);

}  // namespace shoal
