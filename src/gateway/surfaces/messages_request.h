// The body of Anthropic's POST /v1/messages and /v1/messages/count_tokens as the chat request that it stands for.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "gateway/openai_request.h"

namespace shoal {

struct MessagesRequest {
  ChatRequest chat;
  std::vector<std::string> skipped_tools;  // types that are the vendor's own ("web_search_20250305"); not offered to the model
};

// `counting`: of count_tokens, which needs no max_tokens.
// Thinking blocks of earlier turns become reasoning, tool results messages of their own; a last message of the assistant is
// continued. A system block that bills a client ("x-anthropic-billing-header: ...") differs in every request and is left out, so
// that the prefix cache serves what follows it.
ApiResult<MessagesRequest> parse_messages_request(std::string_view body, const RequestLimits& limits, bool counting);

}  // namespace shoal
