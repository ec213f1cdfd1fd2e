// An answer before it is bytes.
#pragma once

#include <string>

#include "base/json.h"
#include "gateway/api_error.h"
#include "gateway/api_keys.h"

namespace shoal {

struct HttpReply {
  int status = 200;
  std::string content_type = "application/json";
  std::string body;
  Headers headers;
};

HttpReply json_reply(const Json& body, int status = 200);
// With Retry-After and what else the error's status asks for.
HttpReply error_reply(const ApiError& error, Surface surface = Surface::kOpenAi, std::string_view request_id = "");

}  // namespace shoal
