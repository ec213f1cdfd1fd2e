// Who may come in: keys and their budgets, whether anything new is taken at all, and when to come back.
#pragma once

#include <atomic>
#include <mutex>
#include <optional>
#include <string_view>
#include <vector>

#include "base/request.h"
#include "base/time.h"
#include "gateway/api_error.h"
#include "gateway/api_keys.h"
#include "gateway/catalog.h"
#include "gateway/metrics.h"
#include "gateway/prepare.h"

namespace shoal {

// Who asks: the index of the API key, where keys are asked for.
struct Caller {
  std::optional<size_t> key;
};

// All methods may be called from any thread.
class Admission {
 public:
  // keys: empty: no key is asked for. `metrics` outlives this; it counts what is refused here.
  Admission(std::vector<ApiKey> keys, Metrics& metrics);

  // authorization: the value of that header; x_api_key likewise. Constant time in the keys' contents. None: a key is
  // needed, and this is not one.
  std::optional<Caller> authenticate(std::string_view authorization, std::string_view x_api_key) const;
  bool may_use(Caller caller, const ModelEntry& model) const;
  std::string_view name(Caller caller) const;  // of the key, for logs; empty where no keys are asked for
  // Whose requests share what is short fairly: a number of the key's that is the same at every gateway that has it; 0 without keys.
  Payer payer(Caller caller) const;

  // Takes the request out of the caller's budgets; the lease is held as long as the answer is under way.
  ApiResult<KeyRing::Lease> admit(Caller caller, const PreparedRequest& request);
  Headers rate_headers(Caller caller);         // x-ratelimit-*: what is left to the caller

  void drain() { draining_.store(true); }      // nothing new from now on
  bool draining() const { return draining_.load(); }

  void answer_ended();                         // one more
  // When a request that found the queue full may try again, 1 to 60 s: by how fast answers have ended lately.
  Duration retry_after(size_t live_requests) const;

 private:
  KeyRing keys_;
  Metrics& metrics_;
  std::atomic<bool> draining_{false};
  mutable std::mutex mutex_;
  TimePoint rate_at_{};                        // guarded by mutex_, as is the next
  double ended_per_second_ = 0;                // decays over half a minute
};

// The key in `Authorization: Bearer KEY`, or else that of `X-Api-Key`.
std::string_view given_key(std::string_view authorization, std::string_view x_api_key);

}  // namespace shoal
