// What goes wrong at the edge: an HTTP status, and a body in the shape that the clients of a surface read.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

#include "base/json.h"
#include "base/status.h"
#include "base/time.h"

namespace shoal {

// Whose interface a path belongs to.
enum class Surface { kOpenAi, kAnthropic, kOllama, kLlamaCpp };

struct ApiError {
  int http_status = 500;
  std::string type = "server_error";
  std::string message;
  std::optional<std::string> param;         // the field that is wrong
  std::optional<std::string> code;          // a word for programs, never a number
  std::optional<uint32_t> retry_after_s;    // sent as Retry-After
  std::optional<uint32_t> n_prompt_tokens;  // context_length_exceeded only
  std::optional<uint32_t> n_ctx;

  // The JSON text. OpenAI: {"error":{"message","type","param","code"}}, all four keys always present; Anthropic:
  // {"type":"error","error":{"type","message"},"request_id"}; Ollama: {"error":MESSAGE}; llama.cpp: {"error":{"code","message","type"}}.
  std::string body(Surface surface = Surface::kOpenAi, std::string_view request_id = "") const;
};

// A value or what to tell the client.
template <typename T>
class ApiResult {
 public:
  ApiResult(T value) : held_(std::move(value)) {}            // NOLINT: conversions are the point
  ApiResult(ApiError error) : held_(std::move(error)) {}     // NOLINT
  bool ok() const { return held_.index() == 0; }
  T& operator*() { return std::get<0>(held_); }
  const T& operator*() const { return std::get<0>(held_); }
  T* operator->() { return &std::get<0>(held_); }
  const T* operator->() const { return &std::get<0>(held_); }
  const ApiError& error() const { return std::get<1>(held_); }

 private:
  std::variant<T, ApiError> held_;
};

// Whole seconds for Retry-After. openai-python obeys it up to 120 s and gives up beyond: always between 1 and 60.
uint32_t retry_seconds(Duration wait);

ApiError invalid_value(std::string param, std::string message);
ApiError unsupported_value(std::string param, std::string message);
ApiError model_not_found(std::string_view model, std::span<const std::string> known = {});
ApiError model_forbidden(std::string_view model);
ApiError unknown_url(std::string_view method, std::string_view path);
ApiError context_length_exceeded(uint32_t n_ctx, uint32_t prompt_tokens, uint32_t completion_tokens);
// The same of a prompt that was not counted to its end.
ApiError prompt_far_too_long(uint32_t n_ctx, uint64_t prompt_tokens_min);
ApiError draining_error();
ApiError shutting_down_error(std::string message);  // of a request that was accepted, and is ended before its answer
ApiError overloaded_error(std::string message, Duration retry_after);

// An error of the roles below, as the client should see it.
ApiError from_status(const Status& status, Duration retry_after = Duration(0));

}  // namespace shoal
