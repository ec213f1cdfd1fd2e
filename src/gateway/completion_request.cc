// Text completion, tokenize and detokenize bodies.
#include "gateway/fields.h"
#include "gateway/openai_request.h"
#include "gateway/other_fields.h"
#include "gateway/request_fields.h"
#include "gateway/strings.h"
#include "nlohmann/json.hpp"

namespace shoal {
namespace {

constexpr size_t kTextBytesMax = 64u << 20;  // the body's own limit is tighter; the context is tighter still
constexpr size_t kIdsMax = 16u << 20;

// A list of ids; false and a fault in `fields` if it is not.
bool read_ids(Fields& fields, const OrderedJson& list, std::string_view where, std::vector<TokenId>& out) {
  for (const OrderedJson& item : list) {
    const auto id = as_integer(item, 0, INT32_MAX);
    if (!id) {
      fields.refuse(where, absl::StrCat("'", str(where), "' holds ", dump_ordered_json(item), "; token ids are integers from 0."));
      return false;
    }
    out.push_back(static_cast<TokenId>(*id));
  }
  return true;
}

// prompt: text | list of texts | list of ids | list of lists of ids.
void read_prompts(Fields& fields, const RequestLimits& limits, std::vector<TextOrIds>& out) {
  const OrderedJson* prompt = fields.find("prompt");
  if (prompt == nullptr) return fields.refuse("prompt", "'prompt' is missing.");
  if (prompt->is_string()) {
    out.emplace_back(prompt->get<std::string>());
    return;
  }
  if (!prompt->is_array() || prompt->empty()) {
    return fields.refuse("prompt", "'prompt' must be a text, a list of texts, a list of token ids or a list of such lists.");
  }
  if (prompt->front().is_number()) {
    std::vector<TokenId> ids;
    if (read_ids(fields, *prompt, "prompt", ids)) out.emplace_back(std::move(ids));
    return;
  }
  if (prompt->size() > limits.prompts_max) {
    return fields.refuse("prompt", absl::StrCat("'prompt' has ", prompt->size(), " entries; the limit is ",
                                                limits.prompts_max, "."));
  }
  for (size_t i = 0; i < prompt->size(); ++i) {
    const OrderedJson& item = (*prompt)[i];
    const std::string where = absl::StrCat("prompt[", i, "]");
    if (item.is_string()) {
      out.emplace_back(item.get<std::string>());
    } else if (item.is_array()) {
      std::vector<TokenId> ids;
      if (!read_ids(fields, item, where, ids)) return;
      out.emplace_back(std::move(ids));
    } else {
      return fields.refuse(where, "'" + where + "' must be a text or a list of token ids.");
    }
  }
}

}  // namespace

ApiResult<CompletionRequest> parse_completion_request(std::string_view body, const RequestLimits& limits) {
  auto json = parse_body(body);
  if (!json.ok()) return json.error();
  Fields fields(*json);
  CompletionRequest request;
  read_generation_fields(fields, limits, request.common);
  read_prompts(fields, limits, request.prompts);
  fields.boolean("echo", request.echo);
  fields.boolean("add_special_tokens", request.add_special_tokens);
  int64_t logprobs = -1;
  fields.integer("logprobs", 0, limits.top_logprobs_max, logprobs);
  if (logprobs >= 0) request.common.logprobs = static_cast<uint32_t>(logprobs);
  if (!request.common.max_tokens) request.common.max_tokens = 16;  // OpenAI's default for this endpoint
  if (fields.ok() && request.prompts.size() * request.common.n > limits.prompts_max) {
    fields.refuse("n", absl::StrCat("'n' times the number of prompts is ", request.prompts.size() * request.common.n,
                                    "; the limit is ", limits.prompts_max, "."));
  }
  check_other_fields(fields);
  if (!fields.ok()) return *fields.error();
  return request;
}

ApiResult<TokenizeRequest> parse_tokenize_request(std::string_view body, const RequestLimits& limits) {
  auto json = parse_body(body);
  if (!json.ok()) return json.error();
  Fields fields(*json);
  TokenizeRequest request;
  fields.text("model", 1024, request.model);
  fields.boolean("add_special_tokens", request.add_special_tokens);
  fields.boolean("return_token_strs", request.return_token_strs);
  if (fields.find("messages") != nullptr) {
    ChatPrompt chat;
    read_chat_prompt(fields, limits, chat);
    request.prompt = std::move(chat);
  } else if (fields.find("prompt") != nullptr) {
    std::string text;
    fields.text("prompt", kTextBytesMax, text);
    request.prompt = std::move(text);
  } else if (fields.find("content") != nullptr) {
    std::string text;
    request.llama_cpp = true;
    request.add_special_tokens = false;
    fields.text("content", kTextBytesMax, text);
    fields.boolean("add_special", request.add_special_tokens);
    fields.boolean("parse_special", request.parse_special);
    fields.boolean("with_pieces", request.return_token_strs);
    request.prompt = std::move(text);
  } else {
    fields.refuse("prompt", "'prompt' or 'messages' is missing.");
  }
  check_misspelt_fields(fields);
  if (!fields.ok()) return *fields.error();
  return request;
}

ApiResult<DetokenizeRequest> parse_detokenize_request(std::string_view body) {
  auto json = parse_body(body);
  if (!json.ok()) return json.error();
  Fields fields(*json);
  DetokenizeRequest request;
  fields.text("model", 1024, request.model);
  if (fields.find("tokens") == nullptr) fields.refuse("tokens", "'tokens' is missing.");
  fields.ids("tokens", kIdsMax, INT32_MAX, request.tokens);
  check_misspelt_fields(fields);
  if (!fields.ok()) return *fields.error();
  return request;
}

}  // namespace shoal
