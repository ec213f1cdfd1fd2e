#include "gateway/service.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <random>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/clock.h"
#include "base/rng.h"
#include "gateway/openapi.h"
#include "gateway/strings.h"
#include "nlohmann/json.hpp"

namespace shoal {
namespace {

// Over which the rate of ended requests is averaged.
constexpr double kRateWindowSeconds = 30;

int64_t unix_seconds() {
  return std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch()).count();
}

uint64_t random_bits() {
  std::random_device device;
  return (static_cast<uint64_t>(device()) << 32) ^ device();
}

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

HttpReply json_reply(Json body) { return {.body = dump_json(body)}; }

}  // namespace

HttpReply error_reply(const ApiError& error) {
  HttpReply reply{.status = error.http_status, .body = error.body()};
  if (error.retry_after_s) reply.headers.emplace_back("Retry-After", std::to_string(*error.retry_after_s));
  if (error.http_status == 401) reply.headers.emplace_back("WWW-Authenticate", "Bearer");
  if (error.http_status == 500) reply.headers.emplace_back("x-should-retry", "false");
  return reply;
}

std::string mint_id() {
  static const uint64_t key = random_bits();
  static std::atomic<uint64_t> counter{0};
  const uint64_t count = counter.fetch_add(1);
  return absl::StrFormat("%016x%08x", counter_bits(key, 1, count), static_cast<uint32_t>(counter_bits(key, 2, count)));
}

Service::Service(ServiceConfig config, Catalog& catalog, RouterLoop& loop)
    : config_(std::move(config)), keys_(config_.api_keys), catalog_(catalog), loop_(loop), seeds_(random_bits()) {
  loop_.timeline().name_models(catalog_.models());
}

std::string_view given_key(std::string_view authorization, std::string_view x_api_key) {
  constexpr std::string_view kBearer = "bearer ";
  if (authorization.size() > kBearer.size() && equal_ignoring_case(authorization.substr(0, kBearer.size()), kBearer)) {
    return trimmed(authorization.substr(kBearer.size()));
  }
  return x_api_key;
}

std::optional<Caller> Service::authenticate(std::string_view authorization, std::string_view x_api_key) const {
  if (keys_.empty()) return Caller{};
  const auto key = keys_.find(given_key(authorization, x_api_key));
  return key ? std::optional<Caller>(Caller{key}) : std::nullopt;
}

bool Service::may_use(Caller caller, const ModelEntry& model) const {
  return !caller.key || keys_.allows(*caller.key, model.name, model.aliases);
}

std::vector<std::string> Service::usable_names(Caller caller) const {
  std::vector<std::string> names;
  for (const ModelRef& model : catalog_.models()) {
    if (!may_use(caller, *model)) continue;
    names.push_back(model->name);
    names.insert(names.end(), model->aliases.begin(), model->aliases.end());
  }
  return names;
}

ApiResult<ModelRef> Service::find_model(const std::string& name, Caller caller) const {
  ModelRef model = catalog_.find(name);
  if (const auto models = catalog_.models(); name.empty() && models.size() == 1) model = models.front();
  if (model == nullptr && name.empty()) return invalid_value("model", "'model' is missing, and there are several: name one of GET /v1/models.");
  if (model == nullptr) return model_not_found(name, usable_names(caller));
  if (!may_use(caller, *model)) return model_forbidden(name);
  return model;
}

ApiResult<PrepareContext> Service::context_for(const std::string& name, Caller caller) {
  auto model = find_model(name, caller);
  if (!model.ok()) return model.error();
  auto text = catalog_.text(**model);
  if (!text.ok()) {
    ApiError error = from_status(Status(StatusCode::kInternal, text.status().message()));
    error.message = absl::StrCat("The model '", name, "' cannot be used: ", text.status().message());
    return error;
  }
  return PrepareContext{.model = *model, .text = *std::move(text), .max_model_len = context_limit(**model, *loop_.snapshot()),
                        .fallback_seed = mix64(seeds_.fetch_add(1)), .now_unix_seconds = unix_seconds(), .grammars = &grammars_};
}

ApiResult<PreparedAnswer> Service::prepare(AnswerKind kind, std::string_view body, Caller caller) {
  if (draining()) return draining_error();
  const auto build = [&](auto request, auto prepare_request, const char* prefix) -> ApiResult<PreparedAnswer> {
    if (!request.ok()) return request.error();
    auto context = context_for(request->common.model, caller);
    if (!context.ok()) return context.error();
    auto prepared = prepare_request(*request, *context);
    if (!prepared.ok()) return prepared.error();
    AnswerHead head{.kind = kind, .id = prefix + mint_id(), .created = unix_seconds(), .model = request->common.model,
                    .include_usage = request->common.include_usage};
    return PreparedAnswer{std::move(head), request->common.stream, std::move(*prepared)};
  };
  if (kind == AnswerKind::kChat) return build(parse_chat_request(body, config_.limits), prepare_chat, "chatcmpl-");
  return build(parse_completion_request(body, config_.limits), prepare_completion, "cmpl-");
}

ApiResult<std::shared_ptr<Generation>> Service::start(PreparedRequest request, std::function<void()> wake,
                                                      size_t unread_bytes_max, Duration time_max) {
  const GenerationOptions options{.deadline = steady_now() + std::min(time_max, config_.request_time_max),
                                  .unread_bytes_max = unread_bytes_max, .metrics = &metrics_};
  {
    std::lock_guard lock(mutex_);
    last_used_[request.model->id] = steady_now();
  }
  const ModelRef model = request.model;
  auto started = Generation::start(std::move(request), loop_, options, std::move(wake));
  if (!started.ok()) {
    metrics_.refused("queue_full");
    metrics_.answer_scored(*model, TokenScore(model->slo, steady_now()), /*finished=*/false);
  }
  return started;
}

ApiResult<KeyRing::Lease> Service::admit(Caller caller, const PreparedRequest& request) {
  if (!caller.key) return KeyRing::Lease();
  uint64_t tokens = 0;
  for (const PreparedPrompt& prompt : request.prompts) tokens += prompt.ids.size();
  auto lease = keys_.admit(*caller.key, tokens, steady_now());
  if (!lease.ok()) metrics_.refused("key_limit");
  return lease;
}

Headers Service::rate_headers(Caller caller) {
  return caller.key ? keys_.rate_headers(*caller.key, steady_now()) : Headers();
}

std::string_view Service::caller_name(Caller caller) const {
  return caller.key ? std::string_view(keys_.key(*caller.key).name) : std::string_view();
}

std::optional<TimePoint> Service::last_used(ModelId model) const {
  std::lock_guard lock(mutex_);
  const auto at = last_used_.find(model);
  return at == last_used_.end() ? std::nullopt : std::optional(at->second);
}

void Service::answer_ended() {
  const TimePoint now = steady_now();
  std::lock_guard lock(mutex_);
  const double past = to_seconds(now - rate_at_);
  ended_per_second_ = ended_per_second_ * std::exp(-past / kRateWindowSeconds) + 1.0 / kRateWindowSeconds;
  rate_at_ = now;
}

// Half of what is queued must end before it is worth coming back.
Duration Service::retry_after() const {
  std::lock_guard lock(mutex_);
  const double rate = ended_per_second_ * std::exp(-to_seconds(steady_now() - rate_at_) / kRateWindowSeconds);
  const double wait = 0.5 * static_cast<double>(loop_.live_requests()) / std::max(rate, 0.01);
  return from_seconds(std::clamp(wait, 1.0, 60.0));
}

void Service::drain() {
  draining_.store(true);
  loop_.drain();
}

HttpReply Service::reply(const Route& route, std::string_view body, Caller caller) {
  const auto nodes = loop_.snapshot();
  switch (route.endpoint) {
    case Endpoint::kRoot: return {.content_type = "text/plain; charset=utf-8", .body = root_page()};
    case Endpoint::kLive: return json_reply({{"status", "ok"}});
    case Endpoint::kReady: return ready();
    case Endpoint::kVersion: return json_reply({{"version", config_.version}});
    case Endpoint::kOpenApi: return {.body = std::string(openapi_json())};
    case Endpoint::kModels: return models(caller);
    case Endpoint::kModel: {
      const auto model = find_model(route.argument, caller);
      return model.ok() ? json_reply(model_json(**model, *nodes)) : error_reply(model.error());
    }
    case Endpoint::kMetrics:
      return {.content_type = "text/plain; version=0.0.4; charset=utf-8", .body = metrics_.text(catalog_.models(), *nodes, loop_.live_requests(), loop_.timeline())};
    case Endpoint::kTokenize: return tokenize(body, caller);
    case Endpoint::kTokenizerInfo: return tokenizer_info(route.argument, caller);
    case Endpoint::kApplyTemplate: return apply_template(body, caller);
    case Endpoint::kDetokenize: return detokenize(body, caller);
    case Endpoint::kChat:
    case Endpoint::kCompletions: break;
  }
  return error_reply(from_status(Status(StatusCode::kInternal, "no such endpoint")));
}

// Ready: the nodes have reported, nothing is draining, and queued work makes progress.
HttpReply Service::ready() const {
  const auto nodes = loop_.snapshot();
  const double stalled = config_.stalled_seconds ? config_.stalled_seconds() : 0;
  std::string reason;
  if (draining()) {
    reason = "draining";
  } else if (nodes->nodes.empty()) {
    reason = "no node has reported yet";
  } else if (stalled > config_.stalled_seconds_max) {
    reason = absl::StrFormat("no step for %.0f s while work is queued", stalled);
  }
  if (reason.empty()) return json_reply({{"status", "ready"}, {"models", catalog_.models().size()}});
  HttpReply reply = error_reply(overloaded_error("Not ready: " + reason + ".", std::chrono::seconds(1)));
  return reply;
}

HttpReply Service::models(Caller caller) const {
  std::vector<ModelRef> visible = catalog_.models();
  std::erase_if(visible, [&](const ModelRef& model) { return !may_use(caller, *model); });
  return {.body = models_body(visible, *loop_.snapshot())};
}

HttpReply Service::tokenize(std::string_view body, Caller caller) {
  auto request = parse_tokenize_request(body, config_.limits);
  if (!request.ok()) return error_reply(request.error());
  auto context = context_for(request->model, caller);
  if (!context.ok()) return error_reply(context.error());
  const Tokenizer& tokenizer = *context->text->tokenizer;
  std::vector<TokenId> ids;
  if (const auto* chat = std::get_if<ChatPrompt>(&request->prompt)) {
    const auto parts = render_chat(*chat, *context->text, context->now_unix_seconds);
    if (!parts.ok()) return error_reply(parts.error());
    ids = encode_chat(*parts, *context->text);
  } else {
    ids = tokenizer.encode(std::get<std::string>(request->prompt),
                           {.add_special = request->add_special_tokens, .parse_special = true});
  }
  return {.body = tokens_body(ids, context->max_model_len, request->return_token_strs ? &tokenizer : nullptr)};
}

// llama.cpp's: the prompt of a conversation as text.
HttpReply Service::apply_template(std::string_view body, Caller caller) {
  const auto request = parse_tokenize_request(body, config_.limits);
  if (!request.ok()) return error_reply(request.error());
  const auto context = context_for((*request).model, caller);
  if (!context.ok()) return error_reply(context.error());
  const auto* chat = std::get_if<ChatPrompt>(&(*request).prompt);
  if (chat == nullptr) return error_reply(invalid_value("messages", "'messages' is missing."));
  const auto parts = render_chat(*chat, *(*context).text, (*context).now_unix_seconds);
  if (!parts.ok()) return error_reply(parts.error());
  return json_reply({{"prompt", join(*parts)}});
}

// vLLM's: what a client needs to render and tokenise like the model, as lm-evaluation-harness does.
HttpReply Service::tokenizer_info(const std::string& model, Caller caller) {
  const auto context = context_for(model, caller);
  if (!context.ok()) return error_reply((context.error()));
  return {.body = (*context).text->tokenizer_info};
}

HttpReply Service::detokenize(std::string_view body, Caller caller) {
  auto request = parse_detokenize_request(body);
  if (!request.ok()) return error_reply(request.error());
  auto context = context_for(request->model, caller);
  if (!context.ok()) return error_reply(context.error());
  for (const TokenId id : request->tokens) {
    if (static_cast<uint32_t>(id) < context->model->vocab_size) continue;
    return error_reply(invalid_value("tokens", absl::StrCat("Token id ", id, " is outside the model's vocabulary of ",
                                                            context->model->vocab_size, ".")));
  }
  return json_reply({{"prompt", context->text->tokenizer->decode(request->tokens, /*skip_special=*/false)}});
}

}  // namespace shoal
