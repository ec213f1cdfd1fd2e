// What clients of llama.cpp's server ask of the server itself: GET /props and /slots.
#pragma once

#include <string>

#include "gateway/http_reply.h"
#include "gateway/model_access.h"

namespace shoal {

// model: of ?model=; empty: the only one.
HttpReply llama_props(const std::string& model, ModelAccess& models, Caller caller);
// One for each request that runs and one that is free, of every model; without a word of anybody's text.
HttpReply llama_slots(const std::string& model, const ModelAccess& models, Caller caller);

}  // namespace shoal
