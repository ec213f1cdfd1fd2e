// Which endpoint a request is for. Pure: a method and a target in, an endpoint or the answer to give instead out.
#pragma once

#include <string>
#include <string_view>
#include <variant>

#include "gateway/http_reply.h"

namespace shoal {

enum class Endpoint {
  kRoot, kChat, kCompletions, kTokenize, kDetokenize, kTokenizerInfo, kApplyTemplate, kModels, kModel, kLive, kReady, kVersion, kMetrics, kOpenApi,
};

std::string_view endpoint_name(Endpoint endpoint);  // for metrics

struct Route {
  Endpoint endpoint;
  std::string argument;  // the model of /v1/models/{id} or of ?model=, percent-decoded
  bool open = false;     // answered without a key
};

// The endpoint, or what to say instead: 404 with the path that was probably meant, 405, or the methods of an OPTIONS. HEAD is
// routed as GET. `target` may be in absolute form, as proxies send it (RFC 9112, section 3.2.2).
std::variant<Route, HttpReply> route_request(std::string_view method, std::string_view target);

// What GET / answers: what this is, and where to go on.
std::string root_page();

}  // namespace shoal
