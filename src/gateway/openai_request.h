// The bodies of POST /v1/chat/completions, /v1/completions, /tokenize and /detokenize as values: every field that is
// understood is checked for type and range here, fields that are not known are ignored, and fields that ask for
// something this server cannot give are refused by name rather than answered without it.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "base/ids.h"
#include "base/json.h"
#include "gateway/api_error.h"
#include "gateway/sampling_fields.h"
#include "gateway/structured_fields.h"
#include "gateway/tool_fields.h"

namespace shoal {

struct RequestLimits {
  uint32_t choices_max = 128;         // n
  uint32_t prompts_max = 1024;        // of one completion request; n times prompts is held to it as well
  uint32_t messages_max = 16'384;
  uint32_t tools_max = 1024;
  uint32_t tool_schema_bytes_max = 256u << 10;  // of the parameters of one tool
  uint32_t stop_strings_max = 64;
  uint32_t stop_string_bytes_max = 1024;
  uint32_t stop_ids_max = 1024;
  uint32_t logit_bias_max = 1024;
  uint32_t top_logprobs_max = 20;
  uint32_t bad_words_max = 1024;
  uint32_t allowed_ids_max = 1u << 20;
  uint32_t dry_breakers_max = 64;
};

// Of the deadlines that a client may name.
constexpr double kDeadlineMsMin = 1;
constexpr double kDeadlineMsMax = 86'400'000;

// What chat and text completions have in common. Empty optionals: the model's generation_config decides.
struct GenerationFields {
  std::string model;
  bool stream = false;
  bool include_usage = false;         // stream_options.include_usage
  uint32_t n = 1;
  std::optional<uint32_t> max_tokens; // 0: no answer is wanted, only what the prompt gives
  bool max_tokens_is_bound = false;   // where the context ends before, the answer ends there, instead of a refusal
  uint32_t min_tokens = 0;
  std::optional<float> temperature;
  std::optional<float> top_p;
  std::optional<float> min_p;
  std::optional<float> repetition_penalty;
  std::optional<uint32_t> top_k;
  float presence_penalty = 0.0f;
  float frequency_penalty = 0.0f;
  std::vector<std::pair<TokenId, float>> logit_bias;
  SamplingExtensions sampling;
  std::optional<int64_t> seed;
  std::vector<std::string> stop;
  std::vector<TokenId> stop_token_ids;
  bool ignore_eos = false;
  bool skip_special_tokens = true;
  bool include_stop_str_in_output = false;
  bool return_tokens_as_token_ids = false;
  std::optional<uint32_t> prompt_logprobs;  // alternatives to report beside each token of the prompt
  std::optional<uint32_t> logprobs;   // alternatives to report beside each token
  int32_t priority = 0;
  Duration ttft_max = Duration::max();  // stricter deadlines than the model's
  Duration tbt_max = Duration::max();
  std::optional<StructuredOutput> structured;  // what the answer must look like
};

// How messages become one text.
struct ChatPrompt {
  // A non-empty array of checked messages: contents are texts, or null beside tool calls; arguments of calls are objects.
  std::shared_ptr<const OrderedJson> messages;
  std::shared_ptr<const OrderedJson> variables;  // chat_template_kwargs: further variables of the template
  ToolFields tools;
  std::string reasoning_effort;           // a variable of some templates; empty: not given
  bool add_generation_prompt = true;
  bool continue_final_message = false;    // the answer goes on where the last message ends
};

struct ChatRequest {
  GenerationFields common;
  ChatPrompt prompt;
  bool parse_reasoning = true;    // reasoning_format "none": it stays in the content
  bool include_reasoning = true;  // else it is left out of the answer
};

using TextOrIds = std::variant<std::string, std::vector<TokenId>>;

struct CompletionRequest {
  GenerationFields common;
  std::vector<TextOrIds> prompts;  // at least one
  bool echo = false;
  bool add_special_tokens = true;
};

struct TokenizeRequest {
  std::string model;                             // may be empty where only one model is served
  std::variant<std::string, ChatPrompt> prompt;
  bool add_special_tokens = true;
  bool return_token_strs = false;
  bool parse_special = true;                     // of a text: special tokens in it are those tokens
  bool llama_cpp = false;                        // asked for as llama.cpp spells it ("content"), to be answered likewise
};

struct DetokenizeRequest {
  std::string model;
  std::vector<TokenId> tokens;
};

ApiResult<ChatRequest> parse_chat_request(std::string_view body, const RequestLimits& limits);
ApiResult<CompletionRequest> parse_completion_request(std::string_view body, const RequestLimits& limits);
ApiResult<TokenizeRequest> parse_tokenize_request(std::string_view body, const RequestLimits& limits);
ApiResult<DetokenizeRequest> parse_detokenize_request(std::string_view body);

}  // namespace shoal
