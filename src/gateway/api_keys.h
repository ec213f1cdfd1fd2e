// Who may ask for how much: API keys with their limits, and the accounts that hold each key to them. A key is known by
// its SHA-256 only; looking one up takes the same time whether and wherever it matches.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"
#include "base/time.h"
#include "gateway/api_error.h"

namespace shoal {

// 0 or empty: no limit.
struct KeyLimits {
  uint32_t requests_per_minute = 0;
  uint64_t tokens_per_minute = 0;    // prompt and answer together
  uint32_t concurrency = 0;          // generation requests under way
  std::vector<std::string> models;   // names or aliases
  friend bool operator==(const KeyLimits&, const KeyLimits&) = default;
};

using KeyDigest = std::array<unsigned char, 32>;
KeyDigest key_digest(std::string_view secret);

struct ApiKey {
  std::string name;   // for logs and metrics; never the secret
  KeyDigest digest{};
  KeyLimits limits;
  uint32_t weight = 1;  // of its share of what is short beside the other keys': Payer
};

// One line of a key file: SECRET or sha256:HEX, then any of name=N rpm=N tpm=N concurrency=N weight=N models=A,B in place of
// the defaults. InvalidArgument names the word that is wrong, and never repeats the secret.
StatusOr<ApiKey> parse_api_key(std::string_view line, const KeyLimits& defaults);

// A budget that refills evenly: `per_minute` units at most, spent at once or over the minute. Debts are allowed (what an
// answer will cost is known at its end) and hold up what comes after. Pure.
class MinuteBudget {
 public:
  MinuteBudget(double per_minute, TimePoint now) : per_minute_(per_minute), level_(per_minute), at_(now) {}
  // How long until `amount` is there; 0: now. An amount beyond the whole budget waits for a full one.
  Duration wait_for(double amount, TimePoint now);
  void spend(double amount, TimePoint now);
  double left(TimePoint now);           // never negative
  Duration until_full(TimePoint now);
  double per_minute() const { return per_minute_; }

 private:
  void refill(TimePoint now);
  double per_minute_;
  double level_;
  TimePoint at_;
};

using Headers = std::vector<std::pair<std::string, std::string>>;

// All methods may be called from any thread.
class KeyRing {
 public:
  explicit KeyRing(std::vector<ApiKey> keys);

  bool empty() const { return keys_.empty(); }   // no key is asked for
  const ApiKey& key(size_t index) const { return keys_[index]; }
  std::optional<size_t> find(std::string_view secret) const;
  // May the key use a model of this name with these aliases?
  bool allows(size_t index, const std::string& name, const std::vector<std::string>& aliases) const;

  // A place among the requests under way of one key; gives it back when it goes.
  class Lease {
   public:
    Lease() = default;
    Lease(KeyRing& ring, size_t index) : ring_(&ring), index_(index) {}
    Lease(Lease&& other) noexcept : ring_(std::exchange(other.ring_, nullptr)), index_(other.index_) {}
    Lease& operator=(Lease&& other) noexcept {
      std::swap(ring_, other.ring_);
      std::swap(index_, other.index_);
      return *this;
    }
    ~Lease();
    void charge_tokens(uint64_t tokens, TimePoint now);  // generated

   private:
    KeyRing* ring_ = nullptr;
    size_t index_ = 0;
  };

  // Takes one request with so many prompt tokens out of the key's budgets, or says 429 with when to come back.
  ApiResult<Lease> admit(size_t index, uint64_t prompt_tokens, TimePoint now);
  // x-ratelimit-*: what is left to the key. Empty where nothing is limited.
  Headers rate_headers(size_t index, TimePoint now);

 private:
  struct Account {
    std::mutex mutex;
    std::optional<MinuteBudget> requests;  // guarded by mutex, as the next two
    std::optional<MinuteBudget> tokens;
    uint32_t under_way = 0;
  };

  const std::vector<ApiKey> keys_;
  std::vector<std::unique_ptr<Account>> accounts_;  // as keys_
};

}  // namespace shoal
