// Which model comes to the device next, and who makes room. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/time.h"
#include "policy/decode_turns.h"

namespace shoal {

// When models share a device that does not hold them all.
enum class Scheduling : uint8_t {
  kToken,    // a model gives way between tokens, when its turn is over and others wait; its answers go on at its next turn
  kRequest,  // a model with requests under way stays; the least recently used goes. How others do it; our baseline
  kStatic,   // models that fit together are loaded and stay, the others are not served
};

// For token-level switching: where a model is in its turn, and what it would cost to change that.
struct TurnView {
  // Was in the dark for too long: before all others, the turn under way ends for it, and its own does not while it has work.
  bool first = false;
  bool promise = false;           // said by when, and keeps that if it is next: before those who did not
  bool due = false;               // still to have its turn in this round
  bool over = false;              // had its quota, or can compute nothing now
  bool answers_first = false;     // ends when what it has begun has ended, and not before
  bool stepping = false;          // a step is in flight: it cannot go now
  double spent_seconds = 0;       // of the turn, by steps
  Duration slack{0};              // until the next token of its requests is due
  double switch_seconds = 0;      // to bring it to the device
  double step_seconds = 0;
  uint32_t kv_pages_held = 0;     // bound pages that would be free without the requests under way; from above
};

struct ModelView {
  ModelId model;
  bool resident = false;
  bool loading = false;
  bool wanted = false;            // has waiting requests, or was asked for
  TimePoint wanted_since{};       // arrival of the oldest of these
  bool busy = false;              // has requests under way: never dropped
  bool queued = false;            // has requests that are not under way yet
  TimePoint queued_since = kForever;  // arrival of the first of these, for request-level switching
  bool pinned = false;            // asked to stay
  uint32_t weight_pages = 0;
  uint32_t kv_pages_min = 0;      // for one sequence of full length
  uint32_t kv_pages_idle = 0;     // bound pages that would be free if the prefix index gave up what nobody uses
  TimePoint last_used{};
  bool fresh = false;             // loaded, and not a token since for the requests it has
  int32_t priority = 0;           // higher first among those that wait
  bool next_group = false;        // of the first queued group of prompts that needs another model
  bool served = true;             // has turns; one that has none takes nobody's room who has, or who has work
  TurnView turn;
};

struct PoolView {
  uint32_t pages = 0;
  uint32_t pages_free = 0;
  uint32_t pages_coming = 0;  // free when copies under way are done
  uint32_t pages_spoken_for = 0;  // of the free ones: what runs on the device is about to write there
};

struct SwitchPlan {
  std::optional<ModelId> load;
  std::vector<ModelId> trim;   // give up idle KV, in this order, before the load
  std::vector<ModelId> drop;   // drop weights, in this order, before the load
  // Take blocks from requests of these models, the youngest first, until the load fits. Not on the device, all of them.
  std::vector<ModelId> take_kv;
  // A model (`next`) has waited longer than hold_after for room that only busy models could give: these take no requests that came
  // later, until it had its turn.
  std::vector<ModelId> hold;
  std::optional<ModelId> next;  // without a load: who comes first when there is room
  friend bool operator==(const SwitchPlan&, const SwitchPlan&) = default;
};

struct SwitchLimits {
  Duration hold_after = std::chrono::milliseconds(500);
};

// Request-level. The model wanted longest is considered first; one that cannot get room yet does not stop a later one that needs no
// room of others. At most one load at a time. Weights go least recently used first, idle KV before weights; a resident
// model whose requests are all still queued gives way only to one that has waited longer than hold_after, and longer than they.
SwitchPlan plan_switch(std::span<const ModelView> models, const PoolView& pool, const SwitchLimits& limits, TimePoint now);

// Token-level. Those that wait come by priority and then least slack, the served ones first, of these who was in the dark for too long.
// A priority counts once a round: who had its turn comes like those of the least. (If the round came first, those that are done soon and
// called again soon would keep one waiting that always has work; it does in the paper's order.)
// Room comes from, in this order: idle KV and weights of models without work, least recently used first; models whose turn is over, or may
// end early (one that is to end with its answers may not), most slack first; and when nothing else could compute meanwhile, KV of requests
// whose model is not on the device, most slack first. A model that was just loaded stays until it gave a token, so that every turn brings
// some answer further. At most one load at a time; a later one may fill free pages that nobody is about to write to, the model of the next
// group of prompts before the others. If nobody computes and the first cannot have its room, the first comes that can.
SwitchPlan plan_token_switch(std::span<const ModelView> models, const PoolView& pool, const TurnOptions& options);

// Those that wait for the device in the order in which plan_token_switch() brings them.
std::vector<ModelId> waiting_order(std::span<const ModelView> models, const TurnOptions& options);

std::string to_string(const SwitchPlan& plan);

}  // namespace shoal
