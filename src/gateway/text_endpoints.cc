#include "gateway/text_endpoints.h"

#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "nlohmann/json.hpp"

namespace shoal {
namespace {

// The answer to /tokenize, with spellings by `tokenizer` where there is one. Written as it goes: values of millions of tokens
// would need ten times the memory of their text.
std::string tokens_body(const std::vector<TokenId>& ids, uint32_t max_model_len, const Tokenizer* tokenizer) {
  std::string body = absl::StrCat("{\"count\":", ids.size(), ",\"max_model_len\":", max_model_len);
  if (tokenizer != nullptr) {
    const auto spelling = [&](std::string* out, TokenId id) { *out += dump_json(tokenizer->token_text(id)); };
    absl::StrAppend(&body, ",\"token_strs\":[", absl::StrJoin(ids, ",", spelling), "]");
  }
  return absl::StrCat(body, ",\"tokens\":[", absl::StrJoin(ids, ","), "]}");
}

// The same as llama.cpp says it.
std::string llama_tokens_body(const std::vector<TokenId>& ids, const Tokenizer* tokenizer) {
  const auto piece = [&](std::string* out, TokenId id) {
    if (tokenizer == nullptr) return absl::StrAppend(out, id);
    absl::StrAppend(out, "{\"id\":", id, ",\"piece\":", dump_json(tokenizer->token_bytes(id, /*first=*/false, /*skip_special=*/false)), "}");
  };
  return absl::StrCat("{\"tokens\":[", absl::StrJoin(ids, ",", piece), "]}");
}

}  // namespace

HttpReply TextEndpoints::tokenize(std::string_view body, Caller caller) {
  auto request = parse_tokenize_request(body, limits_);
  if (!request.ok()) return error_reply(request.error());
  auto context = models_.open(request->model, caller);
  if (!context.ok()) return error_reply(context.error());
  const Tokenizer& tokenizer = *context->text->tokenizer;
  std::vector<TokenId> ids;
  if (const auto* chat = std::get_if<ChatPrompt>(&request->prompt)) {
    const auto parts = render_chat(*chat, *context->text, context->now_unix_seconds);
    if (!parts.ok()) return error_reply(parts.error());
    ids = encode_chat(*parts, *context->text);
  } else {
    ids = tokenizer.encode(std::get<std::string>(request->prompt),
                           {.add_special = request->add_special_tokens, .parse_special = request->parse_special});
  }
  if (request->llama_cpp) return {.body = llama_tokens_body(ids, request->return_token_strs ? &tokenizer : nullptr)};
  return {.body = tokens_body(ids, context->max_model_len, request->return_token_strs ? &tokenizer : nullptr)};
}

HttpReply TextEndpoints::apply_template(std::string_view body, Caller caller) {
  const auto request = parse_tokenize_request(body, limits_);
  if (!request.ok()) return error_reply(request.error());
  const auto context = models_.open(request->model, caller);
  if (!context.ok()) return error_reply(context.error());
  const auto* chat = std::get_if<ChatPrompt>(&request->prompt);
  if (chat == nullptr) return error_reply(invalid_value("messages", "'messages' is missing."));
  const auto parts = render_chat(*chat, *context->text, context->now_unix_seconds);
  if (!parts.ok()) return error_reply(parts.error());
  return json_reply({{"prompt", join(*parts)}});
}

HttpReply TextEndpoints::tokenizer_info(const std::string& model, Caller caller) {
  const auto context = models_.open(model, caller);
  if (!context.ok()) return error_reply(context.error());
  return {.body = context->text->tokenizer_info};
}

HttpReply TextEndpoints::detokenize(std::string_view body, Caller caller) {
  auto request = parse_detokenize_request(body);
  if (!request.ok()) return error_reply(request.error());
  auto context = models_.open(request->model, caller);
  if (!context.ok()) return error_reply(context.error());
  for (const TokenId id : request->tokens) {
    if (static_cast<uint32_t>(id) < context->model->vocab_size) continue;
    return error_reply(invalid_value("tokens", absl::StrCat("Token id ", id, " is outside the model's vocabulary of ",
                                                            context->model->vocab_size, ".")));
  }
  const std::string text = context->text->tokenizer->decode(request->tokens, /*skip_special=*/false);
  return json_reply({{"prompt", text}, {"content", text}});  // vLLM's word, and llama.cpp's
}

}  // namespace shoal
