#include "gateway/prepare.h"

#include <algorithm>

#include "gateway/call_constraint.h"
#include "gateway/strings.h"
#include "nlohmann/json.hpp"

namespace shoal {
namespace {

// top_p = 0 is allowed by OpenAI's schema; the sampler's range is open at 0, and the least value means the same.
constexpr float kTopPLeast = 1e-6f;

// A chat template writes the special tokens itself, so the tokenizer adds none.
constexpr EncodeOptions kChatEncoding{.add_special = false, .parse_special = true};

// The template that renders a prompt, and what is known of it.
struct ChosenTemplate {
  const ChatTemplate* chat_template;
  const TemplateTraits& traits;
};

ChosenTemplate template_for(const ChatPrompt& prompt, const ModelText& text) {
  if (prompt.tools.offered() && text.tool_template != nullptr) return {text.tool_template.get(), text.tool_traits};
  return {text.chat_template.get(), text.traits};
}

// What a model writes calls in: what it is known to write, or what it is told in words.
const CallSyntax* calls_for(const ChatPrompt& prompt, const ModelText& text) {
  const bool told = !template_for(prompt, text).traits.tools;
  return text.format.calls == nullptr || told ? &generic_calls() : text.format.calls;
}

OrderedJson template_messages(const ChatPrompt& prompt, const ModelText& text) {
  const OrderedJson none;
  const OrderedJson& tools = prompt.tools.offered() ? *prompt.tools.tools : none;
  OrderedJson messages = adapt_messages(*prompt.messages, tools, template_for(prompt, text).traits, *calls_for(prompt, text));
  for (OrderedJson& message : messages) {
    if (!text.knows_developer_role && message["role"] == "developer") message["role"] = "system";
  }
  return messages;
}

// Whether the prompt leaves the answer inside of reasoning: what the template wrote last opened it.
bool opens_reasoning(const std::vector<TextPart>& parts, const ReasoningSyntax& syntax) {
  if (syntax.begin.empty()) return false;
  std::string tail;
  for (size_t i = parts.size(); i > 0 && parts[i - 1].trusted; --i) tail.insert(0, parts[i - 1].text);
  const std::string begin(syntax.begin.substr(0, syntax.begin.find('\n')));
  const size_t opened = tail.rfind(begin);
  return opened != std::string::npos && tail.find(syntax.end, opened) == std::string::npos;
}

AnswerParserOptions answer_options(const ChatRequest& request, const ModelText& text, const std::vector<TextPart>& parts) {
  AnswerParserOptions options;
  options.format = text.format;
  options.format.calls = calls_for(request.prompt, text);
  options.reasoning = request.parse_reasoning;
  if (request.prompt.tools.offered()) options.tools = request.prompt.tools.specs;
  if (const ReasoningSyntax* syntax = text.format.reasoning; syntax != nullptr) {
    options.starts_reasoning = opens_reasoning(parts, *syntax);
    // A model that is known to reason does not when the template has closed it.
    const bool closed = !parts.empty() && parts.back().trusted && parts.back().text.find(syntax->end) != std::string::npos;
    if (closed && !options.starts_reasoning) options.format.always_reasons = false;
  }
  return options;
}

// Cuts the rendered prompt right after the last message's own text, so that the model continues it.
ApiResult<std::vector<TextPart>> cut_after_last_message(std::vector<TextPart> parts, const OrderedJson& messages) {
  if (!messages.back()["content"].is_string()) {
    return invalid_value("continue_final_message", "The last message has no text that could be continued.");
  }
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
  const GenerationDefaults& defaults = context.model->defaults;
  out.temperature = fields.temperature.value_or(defaults.temperature.value_or(1.0f));
  out.top_p = std::max(fields.top_p.value_or(defaults.top_p.value_or(1.0f)), kTopPLeast);
  out.min_p = fields.min_p.value_or(defaults.min_p.value_or(0.0f));
  out.top_k = fields.top_k.value_or(defaults.top_k.value_or(0));
  out.repetition_penalty = fields.repetition_penalty.value_or(defaults.repetition_penalty.value_or(1.0f));
  out.presence_penalty = fields.presence_penalty;
  out.frequency_penalty = fields.frequency_penalty;
  out.typical_p = fields.sampling.typical_p;
  out.top_n_sigma = fields.sampling.top_n_sigma;
  out.xtc_probability = fields.sampling.xtc_probability;
  out.xtc_threshold = fields.sampling.xtc_threshold;
  out.dry = fields.sampling.dry;
  out.mirostat = fields.sampling.mirostat;
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

// The ids of a prompt of `bytes` bytes. A text of which a context could not hold half is not tokenised to its end; one that is
// less too long is, so that its writer is told by how much.
template <typename Text>
ApiResult<std::vector<TokenId>> encode_prompt(const Text& text, uint64_t bytes, EncodeOptions options, const PrepareContext& context,
                                              const char* param) {
  const Tokenizer& tokenizer = *context.text->tokenizer;
  options.tokens_max = 2 * size_t{context.max_model_len};
  uint64_t least = tokenizer.tokens_min(bytes);
  if (least <= options.tokens_max) {
    std::vector<TokenId> ids = tokenizer.encode(text, options);
    if (ids.size() <= options.tokens_max) return ids;
    least = std::max<uint64_t>(least, ids.size());
  }
  ApiError error = prompt_far_too_long(context.max_model_len, least);
  error.param = param;
  return error;
}

// How long the answer may become: what was asked for, or all that fits beside the longest prompt.
ApiResult<uint32_t> answer_length(const GenerationFields& fields, const PrepareContext& context,
                                  const std::vector<PreparedPrompt>& prompts, const char* param) {
  uint32_t longest = 0;
  for (const PreparedPrompt& prompt : prompts) longest = std::max(longest, static_cast<uint32_t>(prompt.ids.size()));
  const uint32_t n_ctx = context.max_model_len;
  const uint32_t asked = std::max(fields.max_tokens.value_or(1), 1u);  // scoring computes one token as well
  const bool fits = longest < n_ctx && (asked <= n_ctx - longest || fields.max_tokens_is_bound);
  if (!fits) {
    ApiError error = context_length_exceeded(n_ctx, longest, fields.max_tokens.value_or(0));
    error.param = param;
    return error;
  }
  if (fields.max_tokens) return std::min(asked, n_ctx - longest);
  return std::min(n_ctx - longest, std::max(context.model->defaults.max_new_tokens.value_or(UINT32_MAX), 1u));
}

ApiResult<PreparedRequest> finish(const GenerationFields& fields, const PrepareContext& context,
                                  std::vector<PreparedPrompt> prompts, bool echo, const char* param) {
  if (auto error = check_vocabulary(fields, context.model->vocab_size)) return *error;
  for (const PreparedPrompt& prompt : prompts) {
    if (auto error = check_ids(prompt.ids, context.model->vocab_size, param)) return *error;
  }
  auto length = answer_length(fields, context, prompts, param);
  if (!length.ok()) return length.error();

  PreparedRequest out;
  out.model = context.model;
  out.text = context.text;
  out.prompts = std::move(prompts);
  out.n = fields.n;
  out.request.model = context.model->id;
  fill_sampling(fields, context, out.request.sampling);
  auto rules = make_token_rules(fields.sampling, *context.text, context.model->vocab_size);
  if (!rules.ok()) return rules.error();
  out.request.sampling.rules = *std::move(rules);
  if (fields.structured) {
    auto grammar = context.grammars != nullptr ? context.grammars->grammar(*fields.structured, *context.model, *context.text)
                                               : make_grammar(*fields.structured, *context.text);
    if (!grammar.ok()) return grammar.error();
    out.request.sampling.grammar = std::move(*grammar);
  }
  out.request.max_tokens = *length;
  out.request.min_tokens = fields.min_tokens;
  out.request.stop_ids = fields.stop_token_ids;
  if (!fields.ignore_eos) {
    auto& ids = out.request.stop_ids;
    ids.insert(ids.end(), context.model->eos_ids.begin(), context.model->eos_ids.end());
    if (const auto eos = context.text->eos_id; eos && std::find(ids.begin(), ids.end(), *eos) == ids.end()) ids.push_back(*eos);
  }
  if (echo && fields.logprobs) out.request.prompt_logprobs = fields.logprobs;
  if (fields.prompt_logprobs) out.request.prompt_logprobs = std::max(out.request.prompt_logprobs.value_or(0), *fields.prompt_logprobs);
  out.request.priority = fields.priority;
  out.request.ttft_max = fields.ttft_max;
  out.request.tbt_max = fields.tbt_max;
  out.output = {.stop = fields.stop, .min_tokens = fields.min_tokens, .include_stop = fields.include_stop_str_in_output,
                .skip_special = fields.skip_special_tokens, .echo = echo, .score_only = fields.max_tokens == 0u,
                .bound_by_context = fields.max_tokens.value_or(0) > *length,
                .tokens_as_ids = fields.return_tokens_as_token_ids, .logprobs = fields.logprobs, .prompt_logprobs = fields.prompt_logprobs};
  return out;
}

}  // namespace

ApiResult<std::vector<TextPart>> render_chat(const ChatPrompt& prompt, const ModelText& text, int64_t now_unix_seconds) {
  const auto [chat_template, traits] = template_for(prompt, text);
  if (chat_template == nullptr) {
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
  if (!prompt.reasoning_effort.empty()) variables["reasoning_effort"] = prompt.reasoning_effort;
  if (prompt.tools.offered() && traits.tools) variables["tools"] = *prompt.tools.tools;
  variables["messages"] = template_messages(prompt, text);
  variables["add_generation_prompt"] = prompt.add_generation_prompt;
  auto parts = chat_template->render_ordered(variables, options);
  if (!parts.ok()) {
    return invalid_value("messages", "The chat template refuses these messages: " + std::string(parts.status().message()));
  }
  if (prompt.continue_final_message) return cut_after_last_message(*std::move(parts), *prompt.messages);
  return *std::move(parts);
}

namespace {

// The form that the client asked of the answer is in `grammar`; calls that it asked for come before it.
std::optional<ApiError> constrain_answer(const ToolFields& tools, const PrepareContext& context, AnswerParserOptions& answer,
                                         GrammarRef& grammar) {
  const bool calls = tools.offered() && tools.choice.kind != ToolChoice::Kind::kAuto;
  if (calls || !grammar) {
    auto constraint = constrain_calls(tools, *context.model, *context.text, context.grammars, answer);
    if (!constraint.ok()) return constraint.error();
    if (*constraint) grammar = std::move(*constraint);
  } else if (answer.begins_in_reasoning() && grammar->triggers.empty()) {  // the form is that of what follows the reasoning
    grammar = Grammar{grammar->gbnf, {std::string(answer.format.reasoning->end)}};
  }
  return std::nullopt;
}

}  // namespace

namespace {

ApiError generates_nothing(const ModelEntry& model) {
  const bool judge = model.pooled->labels > 0;
  return invalid_value("model", absl::StrCat("The model '", model.name, "' ", judge ? "judges texts" : "makes embeddings", " and generates nothing; use ",
                                             judge ? "/v1/rerank or /v1/score." : "/v1/embeddings."));
}

}  // namespace

std::vector<TokenId> encode_chat(const std::vector<TextPart>& parts, const ModelText& text) {
  return text.tokenizer->encode(parts, kChatEncoding);
}

ApiResult<PreparedRequest> prepare_chat(const ChatRequest& request, const PrepareContext& context) {
  if (context.model->pooled) return generates_nothing(*context.model);
  auto parts = render_chat(request.prompt, *context.text, context.now_unix_seconds);
  if (!parts.ok()) return parts.error();
  uint64_t bytes = 0;
  for (const TextPart& part : *parts) bytes += part.text.size();
  auto ids = encode_prompt(*parts, bytes, kChatEncoding, context, "messages");
  if (!ids.ok()) return ids.error();
  std::vector<PreparedPrompt> prompts(1);
  prompts[0].ids = *std::move(ids);
  auto prepared = finish(request.common, context, std::move(prompts), false, "messages");
  if (!prepared.ok()) return prepared;
  AnswerParserOptions& answer = (*prepared).answer;
  answer = answer_options(request, *context.text, *parts);
  SamplingParams& sampling = (*prepared).request.sampling;
  if (auto error = constrain_answer(request.prompt.tools, context, answer, sampling.grammar)) return *error;
  (*prepared).include_reasoning = request.include_reasoning;
  (*prepared).id_seed = context.fallback_seed;
  return prepared;
}

ApiResult<PreparedRequest> prepare_completion(const CompletionRequest& request, const PrepareContext& context) {
  if (context.model->pooled) return generates_nothing(*context.model);
  const Tokenizer& tokenizer = *context.text->tokenizer;
  std::vector<PreparedPrompt> prompts;
  prompts.reserve(request.prompts.size());
  for (const TextOrIds& given : request.prompts) {
    PreparedPrompt prompt;
    if (const auto* text = std::get_if<std::string>(&given)) {
      auto ids = encode_prompt(*text, text->size(), {.add_special = request.add_special_tokens, .parse_special = true}, context, "prompt");
      if (!ids.ok()) return ids.error();
      prompt.ids = *std::move(ids);
      if (request.echo) prompt.text = *text;
    } else {
      prompt.ids = std::get<std::vector<TokenId>>(given);
      if (auto error = check_ids(prompt.ids, context.model->vocab_size, "prompt")) return *error;
      if (request.echo) prompt.text = tokenizer.decode(prompt.ids, request.common.skip_special_tokens);
    }
    prompts.push_back(std::move(prompt));
  }
  return finish(request.common, context, std::move(prompts), request.echo, "prompt");
}

}  // namespace shoal
