// Headers with rules of their own: cross-origin requests of browsers, the trace context, a client's own deadline.
#pragma once

#include <chrono>
#include <string>
#include <string_view>
#include <vector>

#include "gateway/service.h"

namespace shoal {

// What lets a page of `origin` read the answer; nothing if it may not, or if there is no origin.
Headers cors_headers(std::string_view origin, const std::vector<std::string>& allowed);

// The answer to a browser's question before the real request; cors_headers() go with it.
HttpReply preflight_reply(std::string_view requested_headers);

// Is it a W3C trace context of version 00 ("00-TRACE-SPAN-FLAGS")?
bool is_traceparent(std::string_view text);

// X-Shoal-Ttft-Ms, X-Shoal-Tbt-Ms: milliseconds that a token may take, a number within the limits of the field `slo`; the
// longest time there is if it is absent.
ApiResult<Duration> deadline_header(std::string name, std::string_view text);

// An interim answer: whoever waits for the real one skips it.
constexpr std::string_view kGoOn = "HTTP/1.1 100 Continue\r\n\r\n";

// The value of a Date header (RFC 9110, section 5.6.7).
std::string http_date(std::chrono::system_clock::time_point at);

// X-Request-Timeout: seconds that the whole answer may take, a number above 0; the longest time there is if it is absent.
ApiResult<Duration> request_timeout(std::string_view text);

}  // namespace shoal
