#include "gateway/http_reply.h"

#include "nlohmann/json.hpp"

namespace shoal {

HttpReply json_reply(const Json& body, int status) { return {.status = status, .body = dump_json(body)}; }

HttpReply error_reply(const ApiError& error, Surface surface, std::string_view request_id) {
  HttpReply reply{.status = error.http_status, .body = error.body(surface, request_id)};
  if (error.retry_after_s) reply.headers.emplace_back("Retry-After", std::to_string(*error.retry_after_s));
  if (error.http_status == 401) reply.headers.emplace_back("WWW-Authenticate", "Bearer");
  if (error.http_status == 500) reply.headers.emplace_back("x-should-retry", "false");
  return reply;
}

}  // namespace shoal
