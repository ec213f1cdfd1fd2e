#include "gateway/prepare.h"

#include <algorithm>

#include "gateway/strings.h"
#include "nlohmann/json.hpp"

namespace shoal {
namespace {

// top_p = 0 is allowed by OpenAI's schema; the sampler's range is open at 0, and the least value means the same.
constexpr float kTopPLeast = 1e-6f;

OrderedJson template_messages(const OrderedJson& messages, bool knows_developer_role) {
  OrderedJson copy = messages;
  for (OrderedJson& message : copy) {
    if (!knows_developer_role && message["role"] == "developer") message["role"] = "system";
  }
  return copy;
}

// Cuts the rendered prompt right after the last message's own text, so that the model continues it.
ApiResult<std::vector<TextPart>> cut_after_last_message(std::vector<TextPart> parts, const OrderedJson& messages) {
  const std::string& content = messages.back()["content"].get_ref<const std::string&>();
  const std::string text = join(parts);
  const std::string_view wanted = trimmed(content);
  const size_t at = text.rfind(wanted);
  if (wanted.empty() || at == std::string::npos) {
    return invalid_value("continue_final_message",
                         "The chat template changes or drops the last message, so it cannot be continued.");
  }
  // The template may have trimmed the message: keep what it kept of the trailing white space.
  size_t end = at + wanted.size();
  const size_t tail = static_cast<size_t>(wanted.data() + wanted.size() - content.data());
  const std::string_view rest = std::string_view(content).substr(tail);
  if (text.compare(end, rest.size(), rest) == 0) end += rest.size();
  std::vector<TextPart> kept;
  for (TextPart& part : parts) {
    const size_t take = std::min(end, part.text.size());
    end -= take;
    if (take > 0) kept.push_back({part.text.substr(0, take), part.trusted});
  }
  return kept;
}

void fill_sampling(const GenerationFields& fields, const PrepareContext& context, SamplingParams& out) {
  const GenerationDefaults& defaults = context.model.defaults;
  out.temperature = fields.temperature.value_or(defaults.temperature.value_or(1.0f));
  out.top_p = std::max(fields.top_p.value_or(defaults.top_p.value_or(1.0f)), kTopPLeast);
  out.min_p = fields.min_p.value_or(defaults.min_p.value_or(0.0f));
  out.top_k = fields.top_k.value_or(defaults.top_k.value_or(0));
  out.repetition_penalty = fields.repetition_penalty.value_or(defaults.repetition_penalty.value_or(1.0f));
  out.presence_penalty = fields.presence_penalty;
  out.frequency_penalty = fields.frequency_penalty;
  out.logit_bias = fields.logit_bias;
  out.seed = fields.seed ? static_cast<uint64_t>(*fields.seed) : context.fallback_seed;
  out.logprobs = fields.logprobs;
}

std::optional<ApiError> check_ids(const std::vector<TokenId>& ids, uint32_t vocab_size, const std::string& param) {
  if (ids.empty()) return invalid_value(param, "The prompt is empty: it has no tokens.");
  for (const TokenId id : ids) {
    if (id < 0 || static_cast<uint32_t>(id) >= vocab_size) {
      return invalid_value(param, absl::StrCat("Token id ", id, " is outside the model's vocabulary of ", vocab_size, "."));
    }
  }
  return std::nullopt;
}

std::optional<ApiError> check_vocabulary(const GenerationFields& fields, uint32_t vocab_size) {
  for (const auto& [id, bias] : fields.logit_bias) {
    if (static_cast<uint32_t>(id) >= vocab_size) {
      return invalid_value("logit_bias", absl::StrCat("Token id ", id, " is outside the model's vocabulary of ",
                                                      vocab_size, "."));
    }
  }
  for (const TokenId id : fields.stop_token_ids) {
    if (static_cast<uint32_t>(id) >= vocab_size) {
      return invalid_value("stop_token_ids", absl::StrCat("Token id ", id, " is outside the model's vocabulary of ",
                                                          vocab_size, "."));
    }
  }
  return std::nullopt;
}

// How long the answer may become: what was asked for, or all that fits beside the longest prompt.
ApiResult<uint32_t> answer_length(const GenerationFields& fields, const PrepareContext& context,
                                  const std::vector<PreparedPrompt>& prompts, const char* param) {
  uint32_t longest = 0;
  for (const PreparedPrompt& prompt : prompts) longest = std::max(longest, static_cast<uint32_t>(prompt.ids.size()));
  const uint32_t n_ctx = context.max_model_len;
  const uint32_t asked = std::max(fields.max_tokens.value_or(1), 1u);  // scoring computes one token as well
  const bool fits = longest < n_ctx && asked <= n_ctx - longest;
  if (!fits) {
    ApiError error = context_length_exceeded(n_ctx, longest, fields.max_tokens.value_or(0));
    error.param = param;
    return error;
  }
  if (fields.max_tokens) return std::max(*fields.max_tokens, 1u);
  return std::min(n_ctx - longest, std::max(context.model.defaults.max_new_tokens.value_or(UINT32_MAX), 1u));
}

ApiResult<PreparedRequest> finish(const GenerationFields& fields, const PrepareContext& context,
                                  std::vector<PreparedPrompt> prompts, bool echo, const char* param) {
  if (auto error = check_vocabulary(fields, context.model.vocab_size)) return *error;
  for (const PreparedPrompt& prompt : prompts) {
    if (auto error = check_ids(prompt.ids, context.model.vocab_size, param)) return *error;
  }
  auto length = answer_length(fields, context, prompts, param);
  if (!length.ok()) return length.error();

  PreparedRequest out;
  out.model = &context.model;
  out.text = context.text;
  out.prompts = std::move(prompts);
  out.n = fields.n;
  out.request.model = context.model.id;
  fill_sampling(fields, context, out.request.sampling);
  out.request.max_tokens = *length;
  out.request.min_tokens = fields.min_tokens;
  out.request.stop_ids = fields.stop_token_ids;
  if (!fields.ignore_eos) {
    auto& ids = out.request.stop_ids;
    ids.insert(ids.end(), context.model.eos_ids.begin(), context.model.eos_ids.end());
    if (const auto eos = context.text->eos_id; eos && std::find(ids.begin(), ids.end(), *eos) == ids.end()) ids.push_back(*eos);
  }
  if (echo && fields.logprobs) out.request.prompt_logprobs = fields.logprobs;
  out.request.priority = fields.priority;
  out.output = {.stop = fields.stop, .min_tokens = fields.min_tokens, .include_stop = fields.include_stop_str_in_output,
                .skip_special = fields.skip_special_tokens, .echo = echo, .score_only = fields.max_tokens == 0u,
                .tokens_as_ids = fields.return_tokens_as_token_ids, .logprobs = fields.logprobs.has_value()};
  return out;
}

}  // namespace

ApiResult<std::vector<TextPart>> render_chat(const ChatPrompt& prompt, const ModelText& text, int64_t now_unix_seconds) {
  if (!text.chat_template) {
    return invalid_value("messages", text.chat_template_problem.empty()
                                         ? "This model has no chat template; use /v1/completions."
                                         : "This model's chat template is not usable: " + text.chat_template_problem);
  }
  // tools and documents are null, not undefined, where there are none: templates ask "is not none".
  OrderedJson variables = {{"tools", nullptr}, {"documents", nullptr}};
  for (const auto& [name, value] : text.template_variables) variables[name] = value;
  RenderOptions options{.now_unix_seconds = now_unix_seconds};
  for (const auto& [name, value] : prompt.variables->items()) {  // chat_template_kwargs: a client wrote them
    variables[name] = value;
    options.untrusted_variables.push_back(name);
  }
  variables["messages"] = template_messages(*prompt.messages, text.knows_developer_role);
  variables["add_generation_prompt"] = prompt.add_generation_prompt;
  auto parts = text.chat_template->render_ordered(variables, options);
  if (!parts.ok()) {
    return invalid_value("messages", "The chat template refuses these messages: " + std::string(parts.status().message()));
  }
  if (prompt.continue_final_message) return cut_after_last_message(*std::move(parts), *prompt.messages);
  return *std::move(parts);
}

ApiResult<std::vector<TokenId>> encode_chat(const ChatPrompt& prompt, const ModelText& text, int64_t now_unix_seconds) {
  auto parts = render_chat(prompt, text, now_unix_seconds);
  if (!parts.ok()) return parts.error();
  // The template writes the special tokens itself, so the tokenizer adds none.
  return text.tokenizer->encode(*parts, {.add_special = false, .parse_special = true});
}

ApiResult<PreparedRequest> prepare_chat(const ChatRequest& request, const PrepareContext& context) {
  auto ids = encode_chat(request.prompt, *context.text, context.now_unix_seconds);
  if (!ids.ok()) return ids.error();
  std::vector<PreparedPrompt> prompts(1);
  prompts[0].ids = std::move(*ids);
  return finish(request.common, context, std::move(prompts), false, "messages");
}

ApiResult<PreparedRequest> prepare_completion(const CompletionRequest& request, const PrepareContext& context) {
  const Tokenizer& tokenizer = *context.text->tokenizer;
  std::vector<PreparedPrompt> prompts;
  prompts.reserve(request.prompts.size());
  for (const TextOrIds& given : request.prompts) {
    PreparedPrompt prompt;
    if (const auto* text = std::get_if<std::string>(&given)) {
      prompt.ids = tokenizer.encode(*text, {.add_special = request.add_special_tokens, .parse_special = true});
      prompt.text = *text;
    } else {
      prompt.ids = std::get<std::vector<TokenId>>(given);
      if (auto error = check_ids(prompt.ids, context.model.vocab_size, "prompt")) return *error;
      if (request.echo) prompt.text = tokenizer.decode(prompt.ids, request.common.skip_special_tokens);
    }
    prompts.push_back(std::move(prompt));
  }
  return finish(request.common, context, std::move(prompts), request.echo, "prompt");
}

}  // namespace shoal
