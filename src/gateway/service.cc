#include "gateway/service.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_format.h"
#include "base/clock.h"
#include "gateway/metrics_page.h"
#include "gateway/openapi.h"
#include "nlohmann/json.hpp"

namespace shoal {

Service::Service(ServiceConfig config, Catalog& catalog, RouterLoop& loop)
    : config_(std::move(config)), catalog_(catalog), loop_(loop), admission_(config_.api_keys, metrics_), models_(admission_, catalog, loop),
      text_(models_, config_.limits), surfaces_(models_, config_.limits, config_.response_store_bytes_max) {
  loop_.timeline().name_models(catalog_.models());
}

bool Service::serves(Endpoint endpoint) const {
  const Surface surface = surface_of(endpoint);
  return (surface != Surface::kOllama || config_.ollama_api) && (surface != Surface::kLlamaCpp || config_.llama_cpp_api);
}

ApiResult<PreparedAnswer> Service::prepare(Endpoint endpoint, std::string_view body, Caller caller) {
  if (admission_.draining()) return draining_error();
  const auto build = [&](auto request, auto prepare_request, AnswerKind kind, const char* prefix) -> ApiResult<PreparedAnswer> {
    if (!request.ok()) return request.error();
    auto context = models_.open(request->common.model, caller);
    if (!context.ok()) return context.error();
    auto prepared = prepare_request(*request, *context);
    if (!prepared.ok()) return prepared.error();
    AnswerHead head{.kind = kind, .id = prefix + mint_id(), .created = unix_seconds(), .model = request->common.model,
                    .include_usage = request->common.include_usage};
    return PreparedAnswer{std::make_unique<OpenAiAnswer>(std::move(head)), request->common.stream, std::move(*prepared), std::nullopt};
  };
  if (endpoint == Endpoint::kChat) return build(parse_chat_request(body, config_.limits), prepare_chat, AnswerKind::kChat, "chatcmpl-");
  if (endpoint == Endpoint::kCompletions) return build(parse_completion_request(body, config_.limits), prepare_completion, AnswerKind::kCompletion, "cmpl-");
  return surfaces_.prepare(endpoint, body, caller);
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

std::optional<TimePoint> Service::last_used(ModelId model) const {
  std::lock_guard lock(mutex_);
  const auto at = last_used_.find(model);
  return at == last_used_.end() ? std::nullopt : std::optional(at->second);
}

Duration Service::retry_after() const { return admission_.retry_after(loop_.live_requests()); }

void Service::drain() {
  admission_.drain();
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
    case Endpoint::kModels: return {.body = models_body(models_.all(caller), *nodes)};
    case Endpoint::kModel: {
      const auto model = models_.find(route.argument, caller);
      return model.ok() ? json_reply(model_json(**model, *nodes)) : error_reply(model.error());
    }
    case Endpoint::kMetrics:
      return {.content_type = "text/plain; version=0.0.4; charset=utf-8", .body = metrics_.text({catalog_.models(), *nodes, loop_.live_requests(), loop_.timeline()})};
    case Endpoint::kTokenize: return text_.tokenize(body, caller);
    case Endpoint::kTokenizerInfo: return text_.tokenizer_info(route.argument, caller);
    case Endpoint::kApplyTemplate: return text_.apply_template(body, caller);
    case Endpoint::kDetokenize: return text_.detokenize(body, caller);
    default: return surfaces_.reply(route, body, caller);
  }
}

// Ready: everything listens, the nodes have reported, nothing is draining, and queued work makes progress.
HttpReply Service::ready() const {
  const auto nodes = loop_.snapshot();
  const double stalled = config_.stalled_seconds ? config_.stalled_seconds() : 0;
  std::string reason;
  if (admission_.draining()) {
    reason = "draining";
  } else if (config_.starting && config_.starting()) {
    reason = "still starting";
  } else if (nodes->nodes.empty()) {
    reason = "no node has reported yet";
  } else if (stalled > config_.stalled_seconds_max) {
    reason = absl::StrFormat("no step for %.0f s while work is queued", stalled);
  }
  if (reason.empty()) return json_reply({{"status", "ready"}, {"models", catalog_.models().size()}});
  HttpReply reply = error_reply(overloaded_error("Not ready: " + reason + ".", std::chrono::seconds(1)));
  return reply;
}

}  // namespace shoal
