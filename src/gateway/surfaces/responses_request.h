// The body of OpenAI's POST /v1/responses as the chat request that it stands for.
#pragma once

#include <functional>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "gateway/openai_request.h"
#include "gateway/surfaces/response_store.h"

namespace shoal {

struct ResponsesRequest {
  ChatRequest chat;
  Json echo;                               // what the response repeats of the request
  Json input;                              // its items
  OrderedJson turns;                       // the conversation without instructions, as ChatPrompt::messages
  std::set<std::string> freeform_tools;    // tools of type "custom": functions with one text, called "input"
  std::vector<std::string> skipped_tools;  // types that only the vendor could run
  bool store = true;
};

// A response that this client may refer to; null if there is none.
using FindResponse = std::function<std::shared_ptr<const StoredResponse>(const std::string& id)>;

ApiResult<ResponsesRequest> parse_responses_request(std::string_view body, const RequestLimits& limits, const FindResponse& find);

// 404 with the id.
ApiError response_not_found(const std::string& id);

// The ids of a response and of its items: "resp_X", "msg_X_0", "fc_X_1" ...
std::string item_id(std::string_view prefix, std::string_view response_id, uint32_t index);

}  // namespace shoal
