// The endpoints that turn text into tokens and back without generating anything.
#pragma once

#include <string>
#include <string_view>

#include "gateway/admission.h"
#include "gateway/http_reply.h"
#include "gateway/model_access.h"
#include "gateway/openai_request.h"

namespace shoal {

// All methods may be called from any thread, and may take a while: they render and tokenise what they are given.
class TextEndpoints {
 public:
  // `models` outlives this.
  TextEndpoints(ModelAccess& models, const RequestLimits& limits) : models_(models), limits_(limits) {}

  HttpReply tokenize(std::string_view body, Caller caller);
  HttpReply detokenize(std::string_view body, Caller caller);
  // llama.cpp's: the prompt of a conversation as text.
  HttpReply apply_template(std::string_view body, Caller caller);
  // vLLM's: what a client needs to render and tokenise like the model, as lm-evaluation-harness does.
  HttpReply tokenizer_info(const std::string& model, Caller caller);

 private:
  ModelAccess& models_;
  const RequestLimits limits_;
};

}  // namespace shoal
