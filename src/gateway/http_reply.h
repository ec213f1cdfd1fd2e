// An answer before it is bytes.
#pragma once

#include <string>

#include "gateway/api_error.h"
#include "gateway/api_keys.h"

namespace shoal {

struct HttpReply {
  int status = 200;
  std::string content_type = "application/json";
  std::string body;
  Headers headers;
};

HttpReply error_reply(const ApiError& error);

}  // namespace shoal
