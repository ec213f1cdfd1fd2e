// What the request fuzzer and the tests over its seeds run.
#pragma once

#include <string_view>

#include "gateway/openai_request.h"
#include "gateway/surfaces/llama_request.h"
#include "gateway/surfaces/messages_request.h"
#include "gateway/surfaces/ollama_request.h"
#include "gateway/surfaces/pooled_request.h"
#include "gateway/surfaces/responses_request.h"

namespace shoal::fuzz {

// Every request body from arbitrary bytes: a value or an error, never anything else. True if one endpoint takes it.
inline bool request(std::string_view body) {
  const RequestLimits limits;
  const bool chat = parse_chat_request(body, limits).ok(), completion = parse_completion_request(body, limits).ok();
  const bool tokenize = parse_tokenize_request(body, limits).ok(), detokenize = parse_detokenize_request(body).ok();
  const auto nothing_stored = [](const std::string&) { return nullptr; };
  const bool message = parse_messages_request(body, limits, false).ok(), counted = parse_messages_request(body, limits, true).ok();
  const bool response = parse_responses_request(body, limits, nothing_stored).ok();
  const bool ollama = parse_ollama_chat(body, limits).ok() | parse_ollama_generate(body, limits).ok();
  (void)parse_ollama_name(body);
  const bool llama = parse_llama_completion(body, limits).ok() | parse_llama_infill(body, limits).ok();
  const bool pooled = parse_embeddings_request(body, limits).ok() | parse_rerank_request(body, limits).ok() | parse_score_request(body, limits).ok() |
                      parse_ollama_embed(body, limits).ok();
  return pooled || chat || completion || tokenize || detokenize || message || counted || response || ollama || llama;
}

}  // namespace shoal::fuzz
