// What the request fuzzer and the tests over its seeds run.
#pragma once

#include <string_view>

#include "gateway/openai_request.h"

namespace shoal::fuzz {

// Every request body from arbitrary bytes: a value or an error, never anything else. True if one endpoint takes it.
inline bool request(std::string_view body) {
  const RequestLimits limits;
  const bool chat = parse_chat_request(body, limits).ok(), completion = parse_completion_request(body, limits).ok();
  const bool tokenize = parse_tokenize_request(body, limits).ok(), detokenize = parse_detokenize_request(body).ok();
  return chat || completion || tokenize || detokenize;
}

}  // namespace shoal::fuzz
