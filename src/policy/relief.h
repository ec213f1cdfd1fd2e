// Who gives up memory when the models on a device have run out of it. Pure: one act at a time, chosen from what is there;
// the caller applies it and asks again.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/time.h"

namespace shoal {

// Of one model that has work or holds memory.
struct ReliefView {
  ModelId model;
  bool resident = false;          // its weights are on the device
  bool away = false;              // they are not, nor on their way
  bool pinned = false;            // asked to stay
  bool fresh = false;             // loaded, and has not given a token since
  bool turn_over = false;         // its quota is spent, or it has found no memory for a while
  uint64_t running = 0;           // sequences with blocks on the device
  uint64_t moving = 0;            // sequences whose blocks are on their way
  uint64_t waiting = 0;
  uint32_t blocks_cached = 0;     // held by its prefix index alone
  TimePoint last_used{};
  uint64_t last_turn = 0;         // number of the step that it had last; 0: never
  std::optional<uint64_t> oldest; // place in the order of submission of its oldest running request
  Duration slack = Duration::max();  // until its next token is due; only of a model that is away and has sequences here
};

// At most one of the acts. None: nobody holds anything that could be given up now.
struct ReliefPlan {
  std::vector<ModelId> trim;         // give up what only their prefix indexes hold
  std::optional<ModelId> drop;       // its weights leave
  std::optional<ModelId> take_kv;    // its youngest sequence is parked, or preempted where the host tier has no room
  std::optional<ModelId> preempt;    // its youngest sequence is preempted,
  std::optional<ModelId> protect;    // for the oldest request of this model: until that ends, nobody else admits
  friend bool operator==(const ReliefPlan&, const ReliefPlan&) = default;
};

// One model found no block for its step: idle KV of the model used longest ago among the others. A model that `must` give a
// token (it came to the device and has not given one, and without that turns would bring nobody further) then takes idle
// weights, KV of a model that is away, and the place of a model whose turn is over.
// `coming`: blocks are on their way to the host tier, and their pages are free in a moment.
ReliefPlan relieve(ModelId model, bool must, std::span<const ReliefView> models, bool coming);

// Every model with work is out of blocks. In this order: KV that only the indexes hold, idle weights, KV of a model that is
// away, the youngest sequence of a model other than that of the oldest request, weights of models whose requests are all
// still waiting. The oldest request gets what it needs and keeps it: without that, two models could take turns in throwing
// each other out for ever.
ReliefPlan relieve_all(std::span<const ReliefView> models, bool coming);

// The one with the most slack of those that are away and have KV on the device.
std::optional<ModelId> first_to_park(std::span<const ReliefView> models);

std::string to_string(const ReliefPlan& plan);

}  // namespace shoal
