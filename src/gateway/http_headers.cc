#include "gateway/http_headers.h"

#include <algorithm>

#include "absl/strings/numbers.h"

namespace shoal {
namespace {

constexpr size_t kOriginBytesMax = 512;
constexpr size_t kRequestedHeadersMax = 2048;
constexpr double kTimeoutSecondsMax = 1e9;

bool printable(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](unsigned char c) { return c >= ' ' && c < 0x7f; });
}

bool lower_hex(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
}

bool all_zero(std::string_view text) { return text.find_first_not_of('0') == std::string_view::npos; }

}  // namespace

Headers cors_headers(std::string_view origin, const std::vector<std::string>& allowed) {
  if (origin.empty() || origin.size() > kOriginBytesMax || !printable(origin)) return {};
  const auto listed = [&](std::string_view name) { return std::find(allowed.begin(), allowed.end(), name) != allowed.end(); };
  const bool any = listed("*");
  if (!any && !listed(origin)) return {};
  Headers headers = {{"Access-Control-Allow-Origin", any ? "*" : std::string(origin)},
                     {"Access-Control-Expose-Headers",
                      "X-Request-Id, Retry-After, traceparent, x-ratelimit-limit-requests, x-ratelimit-remaining-requests, "
                      "x-ratelimit-reset-requests, x-ratelimit-limit-tokens, x-ratelimit-remaining-tokens, "
                      "x-ratelimit-reset-tokens"}};
  if (!any) headers.emplace_back("Vary", "Origin");
  return headers;
}

HttpReply preflight_reply(std::string_view requested_headers) {
  const bool usable = !requested_headers.empty() && requested_headers.size() <= kRequestedHeadersMax && printable(requested_headers);
  return {.status = 204, .body = "",
          .headers = {{"Access-Control-Allow-Methods", "GET, HEAD, POST, DELETE, OPTIONS"},
                      {"Access-Control-Allow-Headers", usable ? std::string(requested_headers)
                                                              : "Authorization, Content-Type, X-Api-Key, X-Request-Id, anthropic-version, anthropic-beta"},
                      {"Access-Control-Max-Age", "86400"}}};
}

ApiResult<Duration> request_timeout(std::string_view text) {
  if (text.empty()) return Duration::max();
  double seconds = 0;
  if (absl::SimpleAtod(absl::string_view(text.data(), text.size()), &seconds) && seconds > 0) {
    return seconds < kTimeoutSecondsMax ? from_seconds(seconds) : Duration::max();
  }
  return invalid_value("X-Request-Timeout", "The header X-Request-Timeout must be a number of seconds above 0.");
}

ApiResult<Duration> deadline_header(std::string name, std::string_view text) {
  if (text.empty()) return Duration::max();
  double ms = 0;
  if (absl::SimpleAtod(absl::string_view(text.data(), text.size()), &ms) && ms >= kDeadlineMsMin && ms <= kDeadlineMsMax) return from_seconds(ms / 1e3);
  std::string message = absl::StrCat("The header ", name, " must be a number of milliseconds from ", kDeadlineMsMin, " to ", kDeadlineMsMax, ".");
  return invalid_value(std::move(name), std::move(message));
}

std::string http_date(std::chrono::system_clock::time_point at) {
  constexpr const char* kDays[] = {"Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"};
  constexpr const char* kMonths[] = {"Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
  const auto day = std::chrono::floor<std::chrono::days>(at);
  const std::chrono::year_month_day date(day);
  const std::chrono::hh_mm_ss time(std::chrono::floor<std::chrono::seconds>(at - day));
  return absl::StrFormat("%s, %02u %s %04d %02d:%02d:%02d GMT", kDays[std::chrono::weekday(day).c_encoding()], static_cast<unsigned>(date.day()),
                         kMonths[static_cast<unsigned>(date.month()) - 1], static_cast<int>(date.year()), time.hours().count(),
                         time.minutes().count(), time.seconds().count());
}

bool is_traceparent(std::string_view text) {
  if (text.size() != 55 || !text.starts_with("00-") || text[35] != '-' || text[52] != '-') return false;
  const std::string_view trace = text.substr(3, 32), span = text.substr(36, 16), flags = text.substr(53, 2);
  return lower_hex(trace) && lower_hex(span) && lower_hex(flags) && !all_zero(trace) && !all_zero(span);
}

}  // namespace shoal
