// What the parts of a world share: the instant, what happens next, chance, and what was seen so far.
#pragma once

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/rng.h"
#include "sim/event_heap.h"
#include "sim/outcome.h"
#include "sim/setup.h"

namespace shoal {

struct WorldState {
  explicit WorldState(const WorldSetup& s) : setup(s), served(s.nodes.at(0).config.models.size(), true), rng(s.seed) {
    for (const AdminChange& change : s.admin) {
      if (change.kind == AdminChange::Kind::kAdd) served.at(change.model.value) = false;
    }
  }

  void after(Duration delay, EventHeap::Act act) { heap.at(now + delay, std::move(act)); }
  double seconds() const { return to_seconds(now.time_since_epoch()); }

  // Into the trace hash.
  void note(uint64_t a, uint64_t b = 0, uint64_t c = 0) {
    const auto instant = static_cast<uint64_t>(now.time_since_epoch().count());
    outcome.trace_hash = mix64(outcome.trace_hash ^ mix64(a ^ mix64(b ^ mix64(c ^ instant))));
  }
  void violate(std::string what) { outcome.violations.push_back(absl::StrCat("at ", seconds(), " s: ", what)); }

  const WorldSetup& setup;
  std::vector<bool> served;  // [model id] now, as the operator has it
  TimePoint now{};
  EventHeap heap;
  Rng rng;
  Outcome outcome;
};

}  // namespace shoal
