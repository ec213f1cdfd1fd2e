// When a server begins with what has come: now, or after waiting a moment for more. A batch reads the weights of an expert once for
// all of its rows, so it pays to have those of several clients together; waiting for one that does not come delays all others.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <map>

#include "base/time.h"

namespace shoal {

enum class BatchRule : uint8_t {
  kAdaptive,  // when those have come who are expected, or the wait is over
  kDeadline,  // when the wait is over
  kGreedy,    // at once
  kAll,       // when all clients have come: a barrier, which a silent client holds for ever. For comparison
};
std::string_view batch_rule_name(BatchRule rule);
std::optional<BatchRule> parse_batch_rule(std::string_view name);

struct BatchOptions {
  BatchRule rule = BatchRule::kAdaptive;
  uint32_t rows_max = 4096;                            // no waiting beyond: more rows save nothing
  Duration wait_max = std::chrono::microseconds(100);  // of the oldest request
  uint32_t misses_max = 3;                             // waited for in vain so often in a row: not expected until it comes again
};

struct ReadySlot {
  uint32_t client = 0;
  uint32_t rows = 0;
  TimePoint since{};            // seen
  TimePoint due = kForever;     // its answer is needed then
};

struct BatchDecision {
  bool fire = false;
  TimePoint look_again = kForever;  // if not: then at the latest
};

// Knows when it has heard of whom. Pure: values and `now` in.
class BatchFormer {
 public:
  explicit BatchFormer(const BatchOptions& options) : options_(options) {}

  void attach(uint32_t client) { clients_[client]; }
  void detach(uint32_t client) { clients_.erase(client); }
  // A request of this client was seen. REQUIRES: attached.
  void arrived(uint32_t client, TimePoint now);

  // `service`: what computing them is thought to take.
  BatchDecision decide(std::span<const ReadySlot> ready, TimePoint now, Duration service) const;
  // It began with these: those that it waited for in vain are noted.
  void fired(std::span<const ReadySlot> ready, TimePoint now);

  // Whether it will probably send soon: heard of within twice the time that it usually takes from one request to the next.
  bool expected(uint32_t client, TimePoint now) const;

 private:
  struct Client {
    TimePoint last{};
    Duration period{};   // between requests, a moving mean; 0: not known yet
    uint32_t misses = 0;
    bool heard = false;
  };
  bool covered(std::span<const ReadySlot> ready, TimePoint now) const;

  const BatchOptions options_;
  std::map<uint32_t, Client> clients_;
};

}  // namespace shoal
