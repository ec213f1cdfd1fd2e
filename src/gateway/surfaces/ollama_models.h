// What Ollama's clients ask of models: GET /api/version, /api/tags, /api/ps, POST /api/show, and the requests that would change
// what there is.
#pragma once

#include <string>
#include <string_view>

#include "gateway/http_reply.h"
#include "gateway/model_access.h"

namespace shoal {

HttpReply ollama_version();
HttpReply ollama_tags(const ModelAccess& models, Caller caller);
HttpReply ollama_ps(const ModelAccess& models, Caller caller);
HttpReply ollama_show(std::string_view body, ModelAccess& models, Caller caller);
// Of /api/pull: done if the model is there, else what to do instead.
HttpReply ollama_pull(std::string_view body, const ModelAccess& models, Caller caller);
// Of /api/push, create, copy and delete.
HttpReply ollama_unserved(std::string_view what);

// Ollama's clients write "NAME:latest" for "NAME".
std::string without_latest(std::string name);

}  // namespace shoal
