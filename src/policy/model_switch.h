// Which model comes to the device next, and who makes room. Request-level: a model with requests under way stays.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/time.h"

namespace shoal {

struct ModelView {
  ModelId model;
  bool resident = false;
  bool loading = false;
  bool wanted = false;            // has waiting requests, or was asked for
  TimePoint wanted_since{};       // arrival of the oldest of these
  bool busy = false;              // has requests under way: never dropped
  bool queued = false;            // has requests that are not under way yet
  bool pinned = false;            // asked to stay
  uint32_t weight_pages = 0;
  uint32_t kv_pages_min = 0;      // for one sequence of full length
  uint32_t kv_pages_idle = 0;     // bound pages that would be free if the prefix index gave up what nobody uses
  TimePoint last_used{};
};

struct PoolView {
  uint32_t pages = 0;
  uint32_t pages_free = 0;
};

struct SwitchPlan {
  std::optional<ModelId> load;
  std::vector<ModelId> trim;   // give up idle KV, in this order, before the load
  std::vector<ModelId> drop;   // drop weights (and what KV they still have), in this order, before the load
  // A model has waited longer than hold_after for room that only busy models could give: these take no new requests
  // until it had its turn.
  std::vector<ModelId> hold;
  friend bool operator==(const SwitchPlan&, const SwitchPlan&) = default;
};

struct SwitchLimits {
  Duration hold_after = std::chrono::milliseconds(500);
};

// The model wanted longest is considered first; one that cannot get room yet does not stop a later one that needs no
// room of others. At most one load at a time. Weights go least recently used first, idle KV before weights; a resident
// model whose requests are all still queued gives way only to one that has waited longer than hold_after.
SwitchPlan plan_switch(std::span<const ModelView> models, const PoolView& pool, const SwitchLimits& limits, TimePoint now);

std::string to_string(const SwitchPlan& plan);

}  // namespace shoal
