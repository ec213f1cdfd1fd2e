// The bodies of Ollama's POST /api/chat and /api/generate as the requests that they stand for.
#pragma once

#include <string_view>
#include <variant>

#include "gateway/openai_request.h"

namespace shoal {

struct OllamaRequest {
  // A conversation; or, with `raw` or for a model without a chat template, a text.
  std::variant<ChatRequest, CompletionRequest> request;
  bool generate = false;    // of /api/generate: the answer is a text, no message
  bool only_load = false;   // there is nothing to answer: the client wants the model ready
  std::string suffix;       // text that the answer is to lead to; of /api/generate

  GenerationFields& common() {
    return std::holds_alternative<ChatRequest>(request) ? std::get<ChatRequest>(request).common : std::get<CompletionRequest>(request).common;
  }
};

// Images, templates and contexts of ids are refused by name; what sizes memory (num_ctx, num_gpu, keep_alive ...) is the operator's
// here and ignored. A prompt that does not fit is refused: nothing is ever cut from it, whatever `truncate` says.
ApiResult<OllamaRequest> parse_ollama_chat(std::string_view body, const RequestLimits& limits);
ApiResult<OllamaRequest> parse_ollama_generate(std::string_view body, const RequestLimits& limits);

// The `model` (or `name`) of the other requests.
ApiResult<std::string> parse_ollama_name(std::string_view body);

}  // namespace shoal
