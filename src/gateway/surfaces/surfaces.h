// The interfaces beside OpenAI's chats and completions. Each is mapped onto the same chat request, so that streams, tools, structured
// output, deadlines, keys and metrics are the same; this file says which parser and which writer belong together.
#pragma once

#include <string_view>

#include "gateway/answer.h"
#include "gateway/http_reply.h"
#include "gateway/model_access.h"
#include "gateway/routes.h"
#include "gateway/surfaces/response_store.h"

namespace shoal {

// All methods may be called from any thread, and may take a while: they render and tokenise.
class Surfaces {
 public:
  // `models` outlives this.
  Surfaces(ModelAccess& models, const RequestLimits& limits, size_t response_store_bytes_max)
      : models_(models), limits_(limits), responses_(response_store_bytes_max) {}

  ApiResult<PreparedAnswer> prepare(Endpoint endpoint, std::string_view body, Caller caller);
  HttpReply reply(const Route& route, std::string_view body, Caller caller);

 private:
  ApiResult<PreparedAnswer> messages(std::string_view body, Caller caller);
  ApiResult<PreparedAnswer> responses(std::string_view body, Caller caller);
  ApiResult<PreparedAnswer> ollama(bool generate, std::string_view body, Caller caller);
  ApiResult<PreparedAnswer> pooled(Endpoint endpoint, std::string_view body, Caller caller);
  ApiResult<PreparedAnswer> llama_completion(std::string_view body, Caller caller);
  ApiResult<PreparedAnswer> llama_infill(std::string_view body, Caller caller);
  HttpReply count_tokens(std::string_view body, Caller caller);
  HttpReply stored(const Route& route, Caller caller);

  ModelAccess& models_;
  const RequestLimits limits_;
  ResponseStore responses_;
};

}  // namespace shoal
