// The endpoints, without HTTP's mechanics: what to answer to a request, whatever carried it here.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "gateway/admission.h"
#include "gateway/answer.h"
#include "gateway/api_error.h"
#include "gateway/catalog.h"
#include "gateway/generation.h"
#include "gateway/http_reply.h"
#include "gateway/metrics.h"
#include "gateway/model_access.h"
#include "gateway/openai_body.h"
#include "gateway/router_loop.h"
#include "gateway/routes.h"
#include "gateway/surfaces/surfaces.h"
#include "gateway/text_endpoints.h"

namespace shoal {

struct ServiceConfig {
  std::string version;                       // "0.1.0 (commit, compiler, features)"
  std::vector<ApiKey> api_keys;              // empty: no key is asked for
  RequestLimits limits;
  Duration request_time_max = std::chrono::hours(1);
  bool ollama_api = true;                    // /api/*
  bool llama_cpp_api = true;                 // /completion, /infill, /props, /slots
  size_t response_store_bytes_max = 64u << 20;  // for each key; see ResponseStore
  double stalled_seconds_max = 30;           // without a step while work is queued: not ready
  std::function<double()> stalled_seconds;   // may be empty
  std::function<bool()> starting;            // not ready yet, whatever the nodes say; may be empty
};

// All methods may be called from any thread; those that tokenise or render may take a while.
class Service {
 public:
  // `catalog` and `loop` outlive the service.
  Service(ServiceConfig config, Catalog& catalog, RouterLoop& loop);

  // Every endpoint that does not generate.
  HttpReply reply(const Route& route, std::string_view body, Caller caller);

  bool serves(Endpoint endpoint) const;          // false: switched off
  // REQUIRES: generates(endpoint).
  ApiResult<PreparedAnswer> prepare(Endpoint endpoint, std::string_view body, Caller caller);
  // unread_bytes_max: see GenerationOptions. time_max: the client's own limit, if it named one; the server's holds too.
  ApiResult<std::shared_ptr<Generation>> start(PreparedRequest request, std::function<void()> wake,
                                               size_t unread_bytes_max, Duration time_max = Duration::max());

  void drain();                                  // not ready, nothing new; what runs goes on
  Admission& admission() { return admission_; }
  Metrics& metrics() { return metrics_; }
  std::optional<TimePoint> last_used(ModelId model) const;
  Duration retry_after() const;                  // when a request that found no room may try again

 private:
  HttpReply ready() const;

  const ServiceConfig config_;
  Catalog& catalog_;
  RouterLoop& loop_;
  Metrics metrics_;
  Admission admission_;
  ModelAccess models_;
  TextEndpoints text_;
  Surfaces surfaces_;
  mutable std::mutex mutex_;
  std::map<ModelId, TimePoint> last_used_;       // guarded by mutex_
};

}  // namespace shoal
