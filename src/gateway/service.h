// The endpoints, without HTTP's mechanics: what to answer to a request, whatever carried it here.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "gateway/answer.h"
#include "gateway/api_error.h"
#include "gateway/api_keys.h"
#include "gateway/catalog.h"
#include "gateway/generation.h"
#include "gateway/metrics.h"
#include "gateway/openai_body.h"
#include "gateway/router_loop.h"
#include "gateway/routes.h"

namespace shoal {

struct ServiceConfig {
  std::string version;                       // "0.1.0 (commit, compiler, features)"
  std::vector<ApiKey> api_keys;              // empty: no key is asked for
  RequestLimits limits;
  Duration request_time_max = std::chrono::hours(1);
  double stalled_seconds_max = 30;           // without a step while work is queued: not ready
  std::function<double()> stalled_seconds;   // may be empty
};

// Who asks: the index of the API key, where keys are asked for.
struct Caller {
  std::optional<size_t> key;
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

  // authorization: the value of that header; x_api_key likewise. Constant time in the keys' contents. None: a key is
  // needed, and this is not one.
  std::optional<Caller> authenticate(std::string_view authorization, std::string_view x_api_key) const;

  // Every endpoint but kChat and kCompletions.
  HttpReply reply(const Route& route, std::string_view body, Caller caller);

  ApiResult<PreparedAnswer> prepare(AnswerKind kind, std::string_view body, Caller caller);
  // Takes the request out of the caller's budgets; the lease is held as long as the answer is under way.
  ApiResult<KeyRing::Lease> admit(Caller caller, const PreparedRequest& request);
  Headers rate_headers(Caller caller);
  std::string_view caller_name(Caller caller) const;  // of the key, for logs; empty where no keys are asked for
  // unread_bytes_max: see GenerationOptions. time_max: the client's own limit, if it named one; the server's holds too.
  ApiResult<std::shared_ptr<Generation>> start(PreparedRequest request, std::function<void()> wake,
                                               size_t unread_bytes_max, Duration time_max = Duration::max());

  void drain();                                  // not ready, nothing new; what runs goes on
  bool draining() const { return draining_.load(); }
  Metrics& metrics() { return metrics_; }
  std::optional<TimePoint> last_used(ModelId model) const;
  // When a request that found the queue full may try again: by how fast requests have ended lately.
  Duration retry_after() const;
  void answer_ended();                           // one more

 private:
  std::vector<std::string> usable_names(Caller caller) const;  // of models, with their aliases
  ApiResult<ModelRef> find_model(const std::string& name, Caller caller) const;
  bool may_use(Caller caller, const ModelEntry& model) const;
  ApiResult<PrepareContext> context_for(const std::string& name, Caller caller);
  HttpReply models(Caller caller) const;
  HttpReply tokenize(std::string_view body, Caller caller);
  HttpReply tokenizer_info(const std::string& model, Caller caller);
  HttpReply detokenize(std::string_view body, Caller caller);
  HttpReply apply_template(std::string_view body, Caller caller);
  HttpReply ready() const;

  const ServiceConfig config_;
  KeyRing keys_;
  Catalog& catalog_;
  GrammarCache grammars_;
  RouterLoop& loop_;
  Metrics metrics_;
  std::atomic<bool> draining_{false};
  std::atomic<uint64_t> seeds_;
  mutable std::mutex mutex_;
  std::map<ModelId, TimePoint> last_used_;          // guarded by mutex_, as are the next two
  TimePoint rate_at_{};
  double ended_per_second_ = 0;                     // decays with kRateWindow
};

// 24 hexadecimal digits that no other request of any process is likely to have.
std::string mint_id();

// The key in `Authorization: Bearer KEY`, or else that of `X-Api-Key`.
std::string_view given_key(std::string_view authorization, std::string_view x_api_key);

}  // namespace shoal
