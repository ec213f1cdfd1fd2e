#include "apps/front.h"

#include <unistd.h>

#include <atomic>
#include <csignal>
#include <future>
#include <mutex>
#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "apps/admin_socket.h"
#include "apps/expert_routing.h"
#include "apps/signals.h"
#include "apps/version.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/open_files.h"
#include "gateway/admin.h"
#include "gateway/run_recorder.h"
#include "gateway/service.h"
#include "nlohmann/json.hpp"

namespace shoal {
namespace {

constexpr uint32_t kAdminConnectionsMax = 64;
constexpr uint64_t kAdminBodyBytesMax = 64 * 1024;
constexpr uint64_t kOtherFiles = 200;  // beside connections of clients
constexpr Duration kLastWords = std::chrono::seconds(2);  // for error events after the drain's end
constexpr Duration kLook = std::chrono::milliseconds(50);

bool finished(const RouterLoop& router, const HttpServer& server) {
  return router.live_requests() == 0 && server.active_requests() == 0;
}

// The operator's listeners: a socket of this user, and TCP where it is asked for.
struct AdminListeners {
  std::unique_ptr<HttpServer> socket;
  std::unique_ptr<HttpServer> tcp;
};

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

// First signal: not ready, nothing new, running requests get their time. Second signal, or time up: error events, end.
void shut_down(RouterLoop& router, Service& service, const HttpServer& server, Duration patience) {
  log_info("draining: ", router.live_requests(), " requests are running; a second signal ends them now");
  service.drain();
  const TimePoint until = steady_now() + patience;
  while (!finished(router, server) && steady_now() < until) {
    if (wait_stop_signal(kLook)) break;
  }
  if (!finished(router, server)) log_warning("ending ", router.live_requests(), " requests that are still running");
  router.abort_all(absl::AbortedError("the server is shutting down and ended this answer before its last token; another replica may give it"));
  const TimePoint last = steady_now() + kLastWords;
  while (!finished(router, server) && steady_now() < last) wait_stop_signal(kLook);
}

// A server ends at a second signal, however it was told of the first.
class FrontImpl : public Front {
 public:
  FrontImpl(const ServeFlags& flags, Parts parts, std::vector<ApiKey> keys)
      : parts_(std::move(parts)),
        service_({.version = version_line(), .api_keys = std::move(keys), 
                  .request_time_max = from_seconds(flags.request_timeout_s), .ollama_api = !flags.no_ollama_api, .llama_cpp_api = !flags.no_llama_cpp_api,
                  .response_store_bytes_max = flags.response_store_mib << 20, .stalled_seconds = parts_.stalled_seconds,
                  .starting = [this] { return starting_.load(); }},
                 parts_.catalog, parts_.router),
        patience_ns_(from_seconds(flags.shutdown_timeout_s).count()),
        socket_admin_(admin(""), service_, parts_.catalog, parts_.router),
        tcp_admin_(admin(flags.admin_key), service_, parts_.catalog, parts_.router) {}

  Status listen(const ServeFlags& flags) {
    if (const uint64_t files = raise_open_files(); files < flags.max_connections + kOtherFiles) {
      log_warning("this process may have ", files, " files open, too few for --max-connections ", flags.max_connections, "; raise the limit (ulimit -n)");
    }
    const HttpServerConfig http{.host = flags.host, .port = flags.port, .unix_socket = flags.uds,
                                .tls_certificate_file = flags.ssl_certfile, .tls_key_file = flags.ssl_keyfile,
                                .cors_origins = flags.cors_origins,
                                .io_threads = flags.http_threads, .work_threads = flags.http_threads,
                                .connections_max = flags.max_connections};
    ASSIGN_OR_RETURN(server_, HttpServer::start(http, service_));
    ASSIGN_OR_RETURN(admin_, listen_admin(flags, server_->port(), service_, socket_admin_, tcp_admin_));
    starting_ = false;
    return OkStatus();
  }

  const HttpServer& server() const override { return *server_; }

  void run() override {
    for (Signal signal = Signal::kNone; signal != Signal::kStop; signal = wait_signal(std::chrono::hours(1))) {
      if (signal == Signal::kReload) reloads_.answer(parts_.reload);
    }
    shut_down(parts_.router, service_, *server_, Duration(patience_ns_.load()));
    log_info("stopped");
  }

 private:
  std::function<void(std::optional<Duration>)> stop() {
    return [this](std::optional<Duration> patience) {  // as SIGTERM does
      if (patience) patience_ns_.store(patience->count());
      kill(getpid(), SIGTERM);
    };
  }
  AdminConfig admin(const std::string& key) {
    AdminConfig config{.key = key, .shutdown = stop(), .reload = reload()};
    if (!parts_.experts) return config;
    config.list_experts = [this] { return list_experts(*parts_.experts); };
    config.change_experts = [this](const std::string& verb, const Json& request) { return shoal::change_experts(*parts_.experts, verb, request); };
    return config;
  }
  std::function<std::shared_future<StatusOr<Json>>()> reload() {
    return [this] { return reloads_.ask(); };
  }

  const Parts parts_;
  std::atomic<bool> starting_{true};  // until all listen: whoever saw it ready finds the operator's endpoints too
  Service service_;
  std::atomic<int64_t> patience_ns_;
  Reloads reloads_;
  Admin socket_admin_, tcp_admin_;
  std::unique_ptr<HttpServer> server_;
  AdminListeners admin_;
};

}  // namespace

StatusOr<std::unique_ptr<Front>> Front::start(const ServeFlags& flags, Parts parts) {
  ASSIGN_OR_RETURN(std::vector<ApiKey> keys, api_keys(flags));
  RETURN_IF_ERROR(record_run(flags, parts.router.timeline()));
  auto front = std::make_unique<FrontImpl>(flags, std::move(parts), std::move(keys));
  RETURN_IF_ERROR(front->listen(flags));
  return front;
}

}  // namespace shoal
