// shoal serve: everything on this machine behind one endpoint.
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdio>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>

#include "CLI/CLI.hpp"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "apps/admin_socket.h"
#include "apps/local_cluster.h"
#include "apps/model_scan.h"
#include "apps/serve_flags.h"
#include "apps/signals.h"
#include "apps/verbs.h"
#include "apps/version.h"
#include "base/bytes.h"
#include "base/clock.h"
#include "base/log.h"
#include "gateway/admin.h"
#include "gateway/http_server.h"
#include "gateway/run_recorder.h"
#include "gateway/service.h"
#include "nlohmann/json.hpp"

namespace shoal {
namespace {

constexpr char kExamples[] =
    "Examples:\n"
    "  shoal serve models/ --port 9000 --preload\n"
    "  shoal serve model.gguf --alias gpt-4o --api-key secret\n"
    "  shoal serve models/ --device-memory 8GiB --quantization q8_0";
constexpr uint32_t kAdminConnectionsMax = 64;
constexpr uint64_t kAdminBodyBytesMax = 64 * 1024;
constexpr Duration kReadyWait = std::chrono::seconds(60);
constexpr Duration kLastWords = std::chrono::seconds(2);  // for error events after the drain's end
constexpr size_t kTokenizersMade = 16;  // at start, for models that are loaded then
constexpr Duration kLook = std::chrono::milliseconds(50);

StatusOr<std::vector<FoundModel>> models_to_serve(const ServeFlags& flags) {
  ASSIGN_OR_RETURN(const LoadOptions options, load_options(flags.engine));
  ASSIGN_OR_RETURN(ScanResult scan, scan_models(flags.path, options, flags.engine.max_model_len));
  for (const Unservable& model : scan.unservable) log_warning("not served: ", model.name, ": ", model.reason);
  RETURN_IF_ERROR(check_any_model(flags.path, scan));
  RETURN_IF_ERROR(apply_aliases(flags.aliases, scan.models));
  RETURN_IF_ERROR(apply_parsers(flags, scan.models));
  RETURN_IF_ERROR(apply_pooling(flags, scan.models));
  return std::move(scan.models);
}

// Starts loading the models, and makes their tokenizers meanwhile, which the first request would wait for. Ends by itself;
// the thread is to be joined before the cluster ends.
std::jthread preload_models(LocalCluster& cluster, const std::vector<ModelId>& ids) {
  for (const ModelId id : ids) cluster.router().want_resident(id, true);
  return std::jthread([&cluster, ids](const std::stop_token& stop) {
    for (size_t i = 0; i < std::min(ids.size(), kTokenizersMade) && !stop.stop_requested(); ++i) {
      if (const ModelRef model = cluster.catalog().find(ids[i])) cluster.catalog().text(*model).status().IgnoreError();  // the first request will tell
    }
  });
}

// Where it is, what is there, and a line to paste.
void announce(const HttpServer& server, const ServeFlags& flags, const std::vector<ModelRef>& models) {
  std::printf("Shoal %s serves %zu model%s at %s\n", version_number().c_str(), models.size(),
              models.size() == 1 ? "" : "s", server.address().c_str());
  for (const ModelRef& model : models) {
    std::printf("  %-24s %-8s %8.1f M parameters, %s, context %u\n", model->name.c_str(), model->architecture.c_str(),
                static_cast<double>(model->parameter_count) / 1e6, format_bytes(model->weight_bytes).c_str(), model->max_model_len);
  }
  const std::string where = flags.uds.empty() ? server.address() : "--unix-socket " + flags.uds + " http://localhost";
  const bool keys = !flags.api_keys.empty() || !flags.api_key_file.empty();
  std::printf("\nTry it:\n  curl %s/v1/chat/completions -H 'Content-Type: application/json'%s \\\n"
              "    -d '{\"model\":\"%s\",\"messages\":[{\"role\":\"user\",\"content\":\"What is the capital of Denmark?\"}]}'\n",
              where.c_str(), keys ? " -H 'Authorization: Bearer YOUR_KEY'" : "", models.front()->name.c_str());
  std::fflush(stdout);
}

bool finished(LocalCluster& cluster, const HttpServer& server) {
  return cluster.router().live_requests() == 0 && server.active_requests() == 0;
}

// The operator's listeners: a socket of this user, and TCP where it is asked for.
struct AdminListeners {
  std::unique_ptr<HttpServer> socket;
  std::unique_ptr<HttpServer> tcp;
};

std::string admin_socket_path(const ServeFlags& flags, uint16_t port) {
  if (flags.admin_socket == "none") return "";
  if (!flags.admin_socket.empty()) return flags.admin_socket;
  return flags.uds.empty() ? default_admin_socket(port) : flags.uds + ".admin";
}

StatusOr<AdminListeners> listen_admin(const ServeFlags& flags, uint16_t port, Service& service, Admin& socket_admin, Admin& tcp_admin) {
  AdminListeners out;
  const std::string path = admin_socket_path(flags, port);
  HttpServerConfig config{.unix_socket = path, .io_threads = 1, .work_threads = 1, .connections_max = kAdminConnectionsMax,
                          .body_bytes_max = kAdminBodyBytesMax};
  if (!path.empty()) {
    if (flags.admin_socket.empty() && flags.uds.empty()) RETURN_IF_ERROR(make_admin_socket_folder(path));
    ASSIGN_OR_RETURN(out.socket, HttpServer::start(config, service, &socket_admin));
  }
  if (flags.admin_port >= 0) {
    config.unix_socket.clear();
    config.host = flags.admin_host;
    config.port = static_cast<uint16_t>(flags.admin_port);
    config.tls_certificate_file = flags.ssl_certfile;
    config.tls_key_file = flags.ssl_keyfile;
    ASSIGN_OR_RETURN(out.tcp, HttpServer::start(config, service, &tcp_admin));
    log_info("operator's endpoints at ", out.tcp->address());
  }
  return out;
}

// --record: what the server was told, then everything that happens.
Status record_run(const ServeFlags& flags, NodeTimeline& timeline) {
  if (flags.record.empty()) return OkStatus();
  ASSIGN_OR_RETURN(const auto recorder, RunRecorder::open(flags.record, steady_now()));
  recorder->write({{"type", "run"}, {"version", 1}, {"server", version_line()}, {"started", absl::FormatTime(absl::RFC3339_sec, absl::Now(), absl::UTCTimeZone())},
                   {"scheduling", flags.engine.scheduling}, {"device_memory", flags.engine.device_memory}, {"max_num_seqs", flags.engine.max_num_seqs},
                   {"max_num_batched_tokens", flags.engine.max_num_batched_tokens}});
  timeline.record(recorder);
  log_info("recording this run in ", flags.record);
  return OkStatus();
}

// Those who asked for the settings to be read again, and wait for what comes of it.
class Reloads {
 public:
  std::shared_future<StatusOr<Json>> ask() {
    std::lock_guard lock(mutex_);
    waiting_.emplace_back();
    kill(getpid(), SIGHUP);  // to the thread that waits for signals
    return waiting_.back().get_future().share();
  }
  void answer(const std::function<StatusOr<Json>()>& reload) {
    std::vector<std::promise<StatusOr<Json>>> waiting;
    {
      std::lock_guard lock(mutex_);
      waiting.swap(waiting_);
    }
    const StatusOr<Json> result = reload();
    for (auto& one : waiting) one.set_value(result);
  }

 private:
  std::mutex mutex_;
  std::vector<std::promise<StatusOr<Json>>> waiting_;
};

// Flags that take effect while the server runs; what else changed waits for a restart.
bool reloadable(const std::string& flag) {
  constexpr std::string_view kOthers[] = {"alias", "tool-call-parser", "reasoning-parser", "preload"};
  return pooling_field(flag) != nullptr || std::find(std::begin(kOthers), std::end(kOthers), flag) != std::end(kOthers);
}

// Reads the file and the folder of models again. A fault in either changes nothing.
StatusOr<Json> reload_settings(ServeFlags& flags, LocalCluster& cluster) {
  const auto attempt = [&]() -> StatusOr<Json> {
    ASSIGN_OR_RETURN(ServeFlags next, settle_again(flags));
    RETURN_IF_ERROR(check_serve_flags(next));
    ASSIGN_OR_RETURN(std::vector<FoundModel> models, models_to_serve(next));
    std::vector<std::string> restart = changed_flags(flags, next);
    std::erase_if(restart, reloadable);
    ASSIGN_OR_RETURN(const std::vector<ModelId> preload, models_to_preload(next.preload, models));  // ids of this list
    std::set<std::string> wanted;
    for (const ModelId id : preload) wanted.insert(models[id.value].entry.name);
    const ModelChanges changes = cluster.update(flags.engine, std::move(models));
    for (const std::string& name : changes.added) {
      const ModelRef model = cluster.catalog().find(name);
      if (model != nullptr && wanted.contains(name)) cluster.router().want_resident(model->id, true);
    }
    flags.models = next.models;
    return Json{{"success", true}, {"added", changes.added}, {"removed", changes.removed}, {"changed", changes.changed},
                {"refused", changes.refused}, {"restart_needed", restart}};
  };
  auto result = attempt();
  if (!result.ok()) log_error("the settings were not reloaded, nothing was changed: ", result.status().message());
  if (result.ok()) log_info("settings reloaded: ", dump_json(*result));
  return result;
}

// First signal: not ready, nothing new, running requests get their time. Second signal, or time up: error events, end.
void shut_down(LocalCluster& cluster, Service& service, const HttpServer& server, Duration patience) {
  log_info("draining: ", cluster.router().live_requests(), " requests are running; a second signal ends them now");
  service.drain();
  const TimePoint until = steady_now() + patience;
  while (!finished(cluster, server) && steady_now() < until) {
    if (wait_stop_signal(kLook)) break;
  }
  if (!finished(cluster, server)) log_warning("ending ", cluster.router().live_requests(), " requests that are still running");
  cluster.router().abort_all(absl::AbortedError("the server is shutting down and ended this answer before its last token; another replica may give it"));
  const TimePoint last = steady_now() + kLastWords;
  while (!finished(cluster, server) && steady_now() < last) wait_stop_signal(kLook);
}

Status settle(ServeFlags& flags) {
  std::vector<std::string> problems;
  flags.models = read_model_settings(config_file(flags), problems);
  if (!problems.empty()) return invalid_argument(absl::StrJoin(problems, "; "));
  RETURN_IF_ERROR(apply(flags.log));
  RETURN_IF_ERROR(check_serve_flags(flags));
  if (!config_file(flags).empty()) log_info("settings of ", config_file(flags));
  flags.engine.estimates_file = estimates_file(flags);
  flags.engine.digests_file = digests_file(flags);
  return OkStatus();
}

StatusOr<int> serve(ServeFlags& flags) {
  RETURN_IF_ERROR(settle(flags));
  block_stop_signals();
  block_reload_signal();
  ASSIGN_OR_RETURN(std::vector<ApiKey> keys, api_keys(flags));
  ASSIGN_OR_RETURN(std::vector<FoundModel> models, models_to_serve(flags));
  ASSIGN_OR_RETURN(const std::vector<ModelId> preload, models_to_preload(flags.preload, models));
  ASSIGN_OR_RETURN(const auto cluster, LocalCluster::start(flags.engine, std::move(models)));
  const std::jthread preloading = preload_models(*cluster, preload);

  std::atomic<bool> starting = true;  // until all listen: whoever saw it ready finds the operator's endpoints too
  ServiceConfig service_config{.version = version_line(), .api_keys = std::move(keys),
                               .request_time_max = from_seconds(flags.request_timeout_s),
                               .ollama_api = !flags.no_ollama_api, .llama_cpp_api = !flags.no_llama_cpp_api,
                               .response_store_bytes_max = flags.response_store_mib << 20,
                               .stalled_seconds = [&] { return cluster->stalled_seconds(); }, .starting = [&] { return starting.load(); }};
  RETURN_IF_ERROR(record_run(flags, cluster->router().timeline()));
  Service service(std::move(service_config), cluster->catalog(), cluster->router());
  const HttpServerConfig http{.host = flags.host, .port = flags.port, .unix_socket = flags.uds,
                              .tls_certificate_file = flags.ssl_certfile, .tls_key_file = flags.ssl_keyfile,
                              .cors_origins = flags.cors_origins,
                              .io_threads = flags.http_threads, .work_threads = flags.http_threads,
                              .connections_max = flags.max_connections};
  ASSIGN_OR_RETURN(const auto server, HttpServer::start(http, service));
  std::atomic<int64_t> patience_ns{from_seconds(flags.shutdown_timeout_s).count()};
  const auto stop = [&patience_ns](std::optional<Duration> patience) {  // as SIGTERM does
    if (patience) patience_ns.store(patience->count());
    kill(getpid(), SIGTERM);
  };
  Reloads reloads;
  const auto reload = [&reloads] { return reloads.ask(); };
  Admin socket_admin({.shutdown = stop, .reload = reload}, service, cluster->catalog(), cluster->router());
  Admin tcp_admin({.key = flags.admin_key, .shutdown = stop, .reload = reload}, service, cluster->catalog(), cluster->router());
  ASSIGN_OR_RETURN(const AdminListeners admin, listen_admin(flags, server->port(), service, socket_admin, tcp_admin));
  if (!cluster->wait_ready(kReadyWait)) return unavailable("the node did not report within a minute; see the log");
  starting = false;
  announce(*server, flags, cluster->catalog().models());

  for (Signal signal = Signal::kNone; signal != Signal::kStop; signal = wait_signal(std::chrono::hours(1))) {
    if (signal == Signal::kReload) reloads.answer([&] { return reload_settings(flags, *cluster); });
  }
  shut_down(*cluster, service, *server, Duration(patience_ns.load()));
  log_info("stopped");
  return kExitOk;
}

}  // namespace

RunVerb add_serve(CLI::App& app) {
  CLI::App* verb = app.add_subcommand("serve", "Serve models over HTTP, OpenAI-compatible");
  auto flags = std::make_shared<ServeFlags>();
  add_serve_flags(*verb, *flags);
  verb->footer(kExamples);
  return [flags, verb] {
    flags->settled = given_options(*verb);
    const auto result = serve(*flags);
    return result.ok() ? *result : fail(std::string(result.status().message()));
  };
}

}  // namespace shoal
