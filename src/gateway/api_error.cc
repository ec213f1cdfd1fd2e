#include "gateway/api_error.h"

#include <algorithm>

#include "base/nearest.h"
#include "gateway/strings.h"
#include "nlohmann/json.hpp"

namespace shoal {
namespace {

constexpr char kInvalidRequest[] = "invalid_request_error";

Json text_or_null(const std::optional<std::string>& text) { return text ? Json(*text) : Json(nullptr); }

ApiError bad_request(std::optional<std::string> param, std::string message, std::string code) {
  return {.http_status = 400, .type = kInvalidRequest, .message = std::move(message), .param = std::move(param),
          .code = std::move(code)};
}

}  // namespace

uint32_t retry_seconds(Duration wait) {
  constexpr Duration kSecond = std::chrono::seconds(1);
  return static_cast<uint32_t>(std::clamp<int64_t>((wait + kSecond - Duration(1)) / kSecond, 1, 60));
}

namespace {

std::string_view anthropic_type(int status) {
  switch (status) {
    case 401: return "authentication_error";
    case 403: return "permission_error";
    case 404: return "not_found_error";
    case 413: return "request_too_large";
    case 429: return "rate_limit_error";
    case 503: return "overloaded_error";
    case 504: return "timeout_error";
    default: return status >= 500 ? "api_error" : "invalid_request_error";
  }
}

std::string_view llama_cpp_type(const ApiError& error) {
  if (error.code == "context_length_exceeded") return "exceed_context_size_error";
  switch (error.http_status) {
    case 401: return "authentication_error";
    case 403: return "permission_error";
    case 404: return "not_found_error";
    case 501: return "not_supported_error";
    case 503: return "unavailable_error";
    default: return error.http_status >= 500 ? "server_error" : "invalid_request_error";
  }
}

}  // namespace

std::string ApiError::body(Surface surface, std::string_view request_id) const {
  if (surface == Surface::kOllama) return dump_json({{"error", message}});
  if (surface == Surface::kAnthropic) {
    Json out = {{"type", "error"}, {"error", {{"type", std::string(anthropic_type(http_status))}, {"message", message}}}};
    if (!request_id.empty()) out["request_id"] = std::string(request_id);
    return dump_json(out);
  }
  const bool openai = surface == Surface::kOpenAi;
  Json error = openai ? Json() : Json({{"message", message}, {"type", std::string(llama_cpp_type(*this))}, {"code", http_status}});
  if (openai) error = {{"message", message}, {"type", type}, {"param", text_or_null(param)}, {"code", text_or_null(code)}};
  if (n_prompt_tokens) error["n_prompt_tokens"] = *n_prompt_tokens;
  if (n_ctx) error["n_ctx"] = *n_ctx;
  return dump_json({{"error", std::move(error)}});
}

ApiError invalid_value(std::string param, std::string message) {
  return bad_request(std::move(param), std::move(message), "invalid_value");
}

ApiError unsupported_value(std::string param, std::string message) {
  return bad_request(std::move(param), std::move(message), "unsupported_value");
}

ApiError model_not_found(std::string_view model, std::span<const std::string> known) {
  const std::string meant = did_you_mean(model, known);
  return {.http_status = 404, .type = "not_found_error",
          .message = absl::StrCat("The model '", str(model), "' does not exist here", meant.empty() ? ";" : meant,
                                  " GET /v1/models lists those that do."),
          .param = "model", .code = "model_not_found"};
}

ApiError model_forbidden(std::string_view model) {
  return {.http_status = 403, .type = "permission_error",
          .message = absl::StrCat("This API key may not use the model '", str(model), "'."), .param = "model",
          .code = "model_forbidden"};
}

ApiError unknown_url(std::string_view method, std::string_view path) {
  return {.http_status = 404, .type = "not_found_error",
          .message = absl::StrCat("Unknown request URL: ", str(method), " ", str(path), "."), .code = "unknown_url"};
}

ApiError context_length_exceeded(uint32_t n_ctx, uint32_t prompt_tokens, uint32_t completion_tokens) {
  const std::string what =
      prompt_tokens >= n_ctx
          ? absl::StrCat("your prompt has ", prompt_tokens, " tokens. Please shorten it.")
          : absl::StrCat("you requested ", prompt_tokens + completion_tokens, " tokens (", prompt_tokens,
                         " in the prompt, ", completion_tokens, " for the completion). Please ask for fewer.");
  ApiError error = bad_request(
      "messages", absl::StrCat("This model's maximum context length is ", n_ctx, " tokens. However, ", what),
      "context_length_exceeded");
  error.n_prompt_tokens = prompt_tokens;
  error.n_ctx = n_ctx;
  return error;
}

ApiError prompt_far_too_long(uint32_t n_ctx, uint64_t prompt_tokens_min) {
  const auto least = static_cast<uint32_t>(std::min<uint64_t>(prompt_tokens_min, UINT32_MAX));
  ApiError error = context_length_exceeded(n_ctx, least, 0);
  error.message = absl::StrCat("This model's maximum context length is ", n_ctx, " tokens. However, your prompt has at least ", least,
                               " tokens. Please shorten it.");
  return error;
}

ApiError draining_error() {
  return {.http_status = 503, .type = "overloaded_error",
          .message = "The server is shutting down and takes no new requests; another replica may.",
          .code = "draining", .retry_after_s = 5};
}

ApiError shutting_down_error(std::string message) {
  return {.http_status = 503, .type = "overloaded_error", .message = std::move(message), .code = "shutting_down", .retry_after_s = 5};
}

ApiError overloaded_error(std::string message, Duration retry_after) {
  return {.http_status = 503, .type = "overloaded_error", .message = std::move(message), .code = "server_overloaded",
          .retry_after_s = retry_seconds(retry_after)};
}

ApiError from_status(const Status& status, Duration retry_after) {
  const std::string message(status.message());
  switch (status.code()) {
    case StatusCode::kInvalidArgument:
    case StatusCode::kOutOfRange:
    case StatusCode::kUnimplemented: return bad_request(std::nullopt, message, "invalid_value");
    case StatusCode::kNotFound:
      return {.http_status = 404, .type = "not_found_error", .message = message, .code = "not_found"};
    case StatusCode::kUnavailable:
    case StatusCode::kResourceExhausted: return overloaded_error(message, retry_after);
    case StatusCode::kAborted: return shutting_down_error(message);
    case StatusCode::kDeadlineExceeded:
      return {.http_status = 504, .type = "timeout_error", .message = message, .code = "deadline_exceeded"};
    case StatusCode::kFailedPrecondition:
      return {.http_status = 503, .type = "server_error", .message = message, .param = "model", .code = "model_load_failed"};
    default:
      return {.http_status = 500, .type = "server_error", .message = message, .code = "internal_error"};
  }
}

}  // namespace shoal
