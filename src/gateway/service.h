// The endpoints, without HTTP's mechanics: what to answer to a request, whatever carried it here.
#pragma once

#include <array>
#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "gateway/answer.h"
#include "gateway/api_error.h"
#include "gateway/catalog.h"
#include "gateway/generation.h"
#include "gateway/metrics.h"
#include "gateway/openai_body.h"
#include "gateway/router_loop.h"

namespace shoal {

struct ServiceConfig {
  std::string version;                       // "0.1.0 (commit, compiler, features)"
  std::vector<std::string> api_keys;         // empty: no key is asked for
  RequestLimits limits;
  Duration request_time_max = std::chrono::hours(1);
  double stalled_seconds_max = 30;           // without a step while work is queued: not ready
  std::function<double()> stalled_seconds;   // may be empty
};

struct HttpReply {
  int status = 200;
  std::string content_type = "application/json";
  std::string body;
  std::vector<std::pair<std::string, std::string>> headers;
};

enum class Endpoint { kChat, kCompletions, kTokenize, kDetokenize, kModels, kModel, kLive, kReady, kVersion, kMetrics };

std::string_view endpoint_name(Endpoint endpoint);  // for metrics

struct Route {
  Endpoint endpoint;
  std::string argument;  // the model id of /v1/models/{id}, percent-decoded
  bool open = false;     // answered without a key
};

// A generation request that is ready to run.
struct PreparedAnswer {
  AnswerHead head;
  bool stream = false;
  PreparedRequest request;
};

// All methods may be called from any thread; those that tokenise or render may take a while.
class Service {
 public:
  // `catalog` and `loop` outlive the service.
  Service(ServiceConfig config, Catalog& catalog, RouterLoop& loop);

  // The endpoint, or what to say instead (404, 405). HEAD is routed as GET.
  std::variant<Route, HttpReply> route(std::string_view method, std::string_view target) const;
  // authorization: the value of that header; x_api_key likewise. Constant time in the keys' contents.
  bool authorized(std::string_view authorization, std::string_view x_api_key) const;

  // Every endpoint but kChat and kCompletions.
  HttpReply reply(const Route& route, std::string_view body);

  ApiResult<PreparedAnswer> prepare(AnswerKind kind, std::string_view body);
  // unread_bytes_max: see GenerationOptions.
  ApiResult<std::shared_ptr<Generation>> start(PreparedRequest request, std::function<void()> wake,
                                               size_t unread_bytes_max);

  void drain();                                  // not ready, nothing new; what runs goes on
  bool draining() const { return draining_.load(); }
  Metrics& metrics() { return metrics_; }

 private:
  using Digest = std::array<unsigned char, 32>;
  ApiResult<const ModelEntry*> find_model(const std::string& name) const;
  ApiResult<PrepareContext> context_for(const std::string& name);
  HttpReply tokenize(std::string_view body);
  HttpReply detokenize(std::string_view body);
  HttpReply ready() const;

  const ServiceConfig config_;
  std::vector<Digest> key_digests_;
  Catalog& catalog_;
  RouterLoop& loop_;
  Metrics metrics_;
  std::atomic<bool> draining_{false};
  std::atomic<uint64_t> seeds_;
};

HttpReply error_reply(const ApiError& error);

// 24 hexadecimal digits that no other request of any process is likely to have.
std::string mint_id();

}  // namespace shoal
