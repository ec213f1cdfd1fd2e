#include "gateway/admin.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_format.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "gateway/admin_status.h"
#include "gateway/fields.h"
#include "gateway/model_totals.h"
#include "gateway/strings.h"
#include "nlohmann/json.hpp"
#include "openssl/crypto.h"

namespace shoal {
namespace {

constexpr size_t kNameBytesMax = 4096;
constexpr double kShutdownSecondsMax = 86'400;

ApiResult<OrderedJson> body_of(std::string_view body) {
  if (trimmed(body).empty()) return OrderedJson(OrderedJson::object());
  return parse_body(body);
}

ApiError load_failed(const ModelEntry& model, const std::string& why) {
  return {.http_status = 503, .type = "server_error", .message = absl::StrCat("The model '", model.name, "' could not be loaded: ", why),
          .param = "model", .code = "model_load_failed"};
}

}  // namespace

Admin::Admin(AdminConfig config, Service& service, Catalog& catalog, RouterLoop& loop)
    : config_(std::move(config)), service_(service), catalog_(catalog), loop_(loop) {}

bool Admin::authorized(std::string_view authorization, std::string_view x_api_key) const {
  if (config_.key.empty()) return true;
  const KeyDigest given = key_digest(given_key(authorization, x_api_key)), wanted = key_digest(config_.key);
  return CRYPTO_memcmp(given.data(), wanted.data(), given.size()) == 0;
}

AdminReply Admin::reply(std::string_view method, std::string_view target, std::string_view body) {
  const std::string_view path = target.substr(0, target.find_first_of("?#"));
  const bool get = method == "GET" || method == "HEAD", post = method == "POST";
  if (get && (path == "/models" || path == "/v1/models")) return models();
  if (get && path == "/running") return running();
  if (get && path == "/api/ps") return ollama_ps();
  if (get && path == "/status") return json_reply(status_json(catalog_, loop_, service_.metrics(), steady_now()));
  if (get && path == "/trace") return HttpReply{.body = loop_.timeline().chrome_trace()};
  if (post && path == "/admin/reload") return reload();
  if (get && path == "/experts") return experts();
  if (post && path.starts_with("/experts/")) return change_experts(path.substr(9), body);
  if (post && path == "/models/load") return load(body);
  if (post && path == "/models/unload") return unload(body);
  if (post && path == "/admin/shutdown") return shutdown(body);
  auto routed = route_request(method, target);
  if (auto* refusal = std::get_if<HttpReply>(&routed)) return std::move(*refusal);
  const Route& route = std::get<Route>(routed);
  switch (route.endpoint) {
    case Endpoint::kLive:
    case Endpoint::kReady:
    case Endpoint::kVersion:
    case Endpoint::kModel:
    case Endpoint::kMetrics: return service_.reply(route, body, Caller{});
    default: return error_reply(unknown_url(method, path));
  }
}

// As /v1/models, with what operators ask: who uses it, what it holds, when it was last wanted.
HttpReply Admin::models() const {
  const auto nodes = loop_.snapshot();
  const TimePoint now = steady_now();
  Json list = Json::array();
  for (const ModelRef& model : catalog_.models()) {
    const ModelTotals totals = totals_of(model->id, *nodes);
    Json item = model_json(*model, *nodes);
    item["requests"] = {{"running", totals.running}, {"waiting", totals.waiting}};
    item["memory"] = {{"weights", totals.weight_bytes}, {"kv_used", totals.kv_bytes}};
    item["loads"] = totals.loads;
    item["next"] = place_in_line(model->id, *nodes);
    const auto used = service_.last_used(model->id);
    item["last_used_seconds_ago"] = used ? Json(to_seconds(now - *used)) : Json(nullptr);
    list.push_back(std::move(item));
  }
  uint64_t total = 0, free = 0, workspace = 0;
  for (const auto& [id, node] : nodes->nodes) {
    total += node.device_bytes;
    free += node.device_bytes_free;
    workspace += node.workspace_bytes;
  }
  return json_reply({{"object", "list"}, {"data", std::move(list)}, {"device", {{"memory", total}, {"free", free}, {"workspace", workspace}}},
                     {"draining", service_.admission().draining()}});
}

HttpReply Admin::running() const {
  const auto nodes = loop_.snapshot();
  Json list = Json::array();
  for (const ModelRef& model : catalog_.models()) {
    const ModelTotals totals = totals_of(model->id, *nodes);
    if (totals.state != ModelState::kLoaded && totals.state != ModelState::kLoading) continue;
    Json item = {{"model", model->name}, {"state", totals.state == ModelState::kLoaded ? "ready" : "starting"}};
    if (totals.state == ModelState::kLoading) item["progress"] = totals.progress;
    list.push_back(std::move(item));
  }
  return json_reply({{"running", std::move(list)}});
}

HttpReply Admin::ollama_ps() const {
  const auto nodes = loop_.snapshot();
  Json list = Json::array();
  for (const ModelRef& model : catalog_.models()) {
    const ModelTotals totals = totals_of(model->id, *nodes);
    if (totals.state != ModelState::kLoaded) continue;
    const uint64_t bytes = totals.weight_bytes + totals.kv_bytes;
    list.push_back({{"name", model->name}, {"model", model->name}, {"size", bytes}, {"size_vram", 0},
                    {"expires_at", "0001-01-01T00:00:00Z"}, {"context_length", context_limit(*model, *nodes)},
                    {"details", {{"family", model->architecture}, {"parameter_size", absl::StrFormat("%.1fM", model->parameter_count / 1e6)}}}});
  }
  return json_reply({{"models", std::move(list)}});
}

std::optional<HttpReply> Admin::load_result(const ModelEntry& model, TimePoint until) const {
  const ModelTotals totals = totals_of(model.id, *loop_.snapshot());
  if (totals.state == ModelState::kLoaded) return json_reply({{"success", true}, {"model", model.name}});
  if (totals.state == ModelState::kFailed) return error_reply(load_failed(model, totals.error));
  if (steady_now() < until) return std::nullopt;
  return error_reply(load_failed(model, "it is still not resident; other models may be in use"));
}

AdminReply Admin::load(std::string_view body) {
  auto json = body_of(body);
  if (!json.ok()) return error_reply(json.error());
  Fields fields(*json);
  std::string name;
  bool wait = false;
  fields.text("model", kNameBytesMax, name);
  fields.boolean("wait", wait);
  if (!fields.ok()) return error_reply(*fields.error());
  const ModelRef model = catalog_.find(name);
  if (model == nullptr) return error_reply(model_not_found(name));
  if (service_.admission().draining()) return error_reply(draining_error());
  loop_.want_resident(model->id, true);
  if (!wait) return json_reply({{"success", true}, {"model", model->name}}, 202);
  // A failure reported before this call is no answer to it: give the new load a moment to be reported.
  const TimePoint now = steady_now(), believe = now + std::chrono::milliseconds(300);
  return PendingReply([this, model, believe, until = now + config_.load_time_max]() -> std::optional<HttpReply> {
    if (steady_now() < believe && totals_of(model->id, *loop_.snapshot()).state == ModelState::kFailed) return std::nullopt;
    return load_result(*model, until);
  });
}

HttpReply Admin::unload(std::string_view body) {
  auto json = body_of(body);
  if (!json.ok()) return error_reply(json.error());
  Fields fields(*json);
  std::string name;
  fields.text("model", kNameBytesMax, name);
  if (!fields.ok()) return error_reply(*fields.error());
  const ModelRef model = catalog_.find(name);
  if (model == nullptr) return error_reply(model_not_found(name));
  loop_.want_resident(model->id, false);
  return json_reply({{"success", true}, {"model", model->name}, {"requests_under_way", loop_.live_requests(model->id)}});
}

AdminReply Admin::reload() {
  if (!config_.reload) return error_reply(unknown_url("POST", "/admin/reload"));
  return PendingReply([done = config_.reload()]() -> std::optional<HttpReply> {
    if (done.wait_for(std::chrono::seconds(0)) != std::future_status::ready) return std::nullopt;
    const StatusOr<Json>& result = done.get();
    if (result.ok()) return json_reply(*result);
    return error_reply({.http_status = 400, .type = "invalid_request_error",
                        .message = absl::StrCat("Nothing was changed: ", result.status().message()), .code = "invalid_settings"});
  });
}

namespace {

ApiError no_experts() {
  return {.http_status = 404, .type = "invalid_request_error", .message = "This server computes experts itself; start it with --experts auto:N, or with the addresses of expert servers.",
          .code = "experts_are_here"};
}

// Computes on a thread of its own what waits for other processes.
PendingReply later(std::function<StatusOr<Json>()> work) {
  auto done = std::async(std::launch::async, std::move(work)).share();
  return [done]() -> std::optional<HttpReply> {
    if (done.wait_for(std::chrono::seconds(0)) != std::future_status::ready) return std::nullopt;
    const StatusOr<Json>& result = done.get();
    if (result.ok()) return json_reply(*result);
    const int status = result.status().code() == StatusCode::kNotFound ? 404 : result.status().code() == StatusCode::kUnavailable ? 503 : result.status().code() == StatusCode::kFailedPrecondition ? 409 : 400;
    return error_reply({.http_status = status, .type = status == 503 ? "server_error" : "invalid_request_error", .message = std::string(result.status().message()), .code = "experts_unchanged"});
  };
}

}  // namespace

AdminReply Admin::experts() const {
  if (!config_.list_experts) return error_reply(no_experts());
  return later([list = config_.list_experts]() -> StatusOr<Json> { return list(); });
}

AdminReply Admin::change_experts(std::string_view verb, std::string_view body) const {
  if (!config_.change_experts) return error_reply(no_experts());
  auto json = body_of(body);
  if (!json.ok()) return error_reply(json.error());
  return later([change = config_.change_experts, verb = std::string(verb), request = Json::parse(json->dump())] { return change(verb, request); });
}

HttpReply Admin::shutdown(std::string_view body) {
  auto json = body_of(body);
  if (!json.ok()) return error_reply(json.error());
  Fields fields(*json);
  std::optional<double> seconds;
  fields.number("timeout_s", 0, kShutdownSecondsMax, seconds);
  if (!fields.ok()) return error_reply(*fields.error());
  if (!config_.shutdown) return error_reply(unknown_url("POST", "/admin/shutdown"));
  config_.shutdown(seconds ? std::optional<Duration>(from_seconds(*seconds)) : std::nullopt);
  return json_reply({{"success", true}, {"requests_under_way", loop_.live_requests()}}, 202);
}

}  // namespace shoal
