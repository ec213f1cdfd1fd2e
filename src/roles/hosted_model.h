// One model of a node, as the rooms of the node see it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/status.h"
#include "engine/engine.h"
#include "memory/block_pool.h"
#include "policy/decode_turns.h"
#include "policy/estimator.h"
#include "roles/node_config.h"

namespace shoal {

struct TurnState {
  double quota_seconds = Turn::kUnlimited;
  double planned_seconds = 0;      // by the last plan of a round that it was in with others
  double spent_seconds = 0;        // of it, by steps after the first
  double stretch = 1;              // quotas that a turn is long
  bool ends = false;               // and then it begins what has come by `closed`, and goes when that has ended,
  double ends_by = Turn::kUnlimited;  // or when so much is spent
  TimePoint closed = kForever;     // when that was spent and others could come
  bool answering = false;          // some of that has not ended
  uint64_t steps = 0;
  bool spent() const { return quota_seconds != Turn::kUnlimited && spent_seconds >= quota_seconds * stretch; }
  bool closing() const { return ends && spent(); }
  bool over() const { return spent() && !(ends && answering && spent_seconds < ends_by); }
};

// Of answers that ended: how long they were, and those that did only because they were as long as they may be.
struct AnswerLengths {
  MovingMean tokens;
  MovingMean filled;               // 1 or 0 for each
  MovingMean filled_tokens;        // of those
  void add(double length, bool fills) {
    tokens.add(length, MovingMean::kOfRequests);
    filled.add(fills ? 1 : 0, MovingMean::kOfRequests);
    if (fills) filled_tokens.add(length, MovingMean::kOfRequests);
  }
};

struct HostedModel {
  NodeModel facts;
  std::unique_ptr<Engine> engine;
  BlockPool* blocks = nullptr;     // of its shape class
  uint32_t kv_pages = 0;           // kv_pages_min()
  ModelEstimator costs;
  ArrivalRate arrivals;
  struct Popularity {
    double requests = 0;           // of late, as of
    uint64_t as_of = 0;            // so many of the node
  } popularity;
  MovingMean copied;               // shares of its weights that its switches copied
  MovingMean prompt_tokens;        // of requests that came
  AnswerLengths answers;           // that ended
  double answer_expected = 0;      // tokens; 0: not known

  // What the operator, the settings and static scheduling want of it.
  bool pinned = false;             // to be there at all times
  bool asked = false;              // by SetResident: to be loaded, and then like any other
  bool returning = false;          // to be loaded while nobody has work: roles/home_coming.h
  bool chosen = false;             // static scheduling: one of those that fit together
  Status excluded;                 // else why not
  bool retired = false;            // goes when its last request has ended; those end here
  bool unload_asked = false;       // and to go when nobody uses it

  // Its weights.
  TimePoint wanted_since = kForever;
  bool read_ahead = false;         // asked for since it is wanted
  std::string load_error;
  float progress = 0.0f;
  uint64_t loads = 0;
  ModelDigest weights;             // of the last load; none yet
  StepPace pace;
  bool fresh = false;              // loaded, and not given a token since: not to be dropped for the next in line

  // Its steps.
  bool stalled = false;            // within one choice of a step: nothing it could compute
  TimePoint stalled_since = kForever;
  uint32_t deferrals = 0;          // of its steps, since one was not
  TimePoint deferred_until{};      // it is not tried before
  std::string deferred_why;        // of the last one; empty: the last step was none
  Engine::Demand demand;           // as of the last choice of a step, if it was runnable
  uint64_t last_turn = 0;          // number of the last step
  MovingMean elapsed_per_computed; // of its steps: what they took over what the device computed them

  TurnState turn;                  // on the device
  bool served = true;              // has turns; false while more tokens are on time without it
  TimePoint dark_since = kForever; // has work, and was not on the device since
};

// To be loaded though it has no work.
inline bool for_later(const HostedModel& m) { return m.pinned || m.asked || m.returning; }

}  // namespace shoal
