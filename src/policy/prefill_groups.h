// Which prompt is computed next, and by whom: grouped first come, first served, after Aegaeon (SOSP'25, algorithm 1).
// A group is one model and up to eight requests, so that one switch serves several. Pure.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <map>
#include <optional>
#include <unordered_map>

#include "base/ids.h"
#include "base/time.h"

namespace shoal {

struct PrefillOptions {
  // Of a group in its life. Not waiting at once: with that, a hot model could refill the first group for ever.
  uint32_t group_max = 8;
  // Nobody joins a group any more when that would make another group's oldest request late.
  bool age_guard = true;
};

struct PrefillJob {
  RequestId request;
  ModelId model;
  double seconds = 0;          // predicted, of its prompt
  TimePoint deadline{};        // of its first token
};

// Seconds of a switch to a model; 0 if nothing has to be loaded.
using SwitchSeconds = std::function<double(ModelId)>;

// The jobs that one device is to compute, in groups, in order. What is asked with every decision does not depend on how many jobs there are.
class PrefillQueue {
 public:
  explicit PrefillQueue(const PrefillOptions& options) : options_(options) {}
  PrefillQueue(const PrefillQueue&) = delete;
  PrefillQueue& operator=(const PrefillQueue&) = delete;

  // Joins the first group of its model that takes it, else opens a group at the tail.
  void add(const PrefillJob& job, const SwitchSeconds& switch_seconds, TimePoint now);
  // Whether add() would join a group that is there.
  bool joins(const PrefillJob& job, const SwitchSeconds& switch_seconds, TimePoint now) const;
  // Took the device, or went away. False if unknown.
  bool remove(RequestId request);

  // First job of the first group.
  std::optional<PrefillJob> next() const;
  // Of this model: jobs in its groups before the first group of another model that stands behind one of them.
  uint32_t ready(ModelId model) const;
  // Predicted seconds of all jobs of this model.
  double seconds_of(ModelId model) const;
  // The first model behind the first group's that needs another one: worth prefetching while the first group runs.
  std::optional<ModelId> prefetch() const;

  // Seconds to drain: what is left of the running job, every prompt, and a switch at each change of model.
  double load_seconds(std::optional<ModelId> active, double running_seconds_left, const SwitchSeconds& switch_seconds) const;

  bool empty() const { return groups_.empty(); }
  size_t size() const { return places_.size(); }
  void check() const;

 private:
  struct Group {
    ModelId model;
    uint32_t admitted = 0;  // in its life
    std::deque<PrefillJob> jobs;  // never empty
    double seconds = 0;           // of all of them
  };
  using Groups = std::list<Group>;
  struct OfModel {
    std::deque<Groups::iterator> groups;  // in their order
    double seconds = 0;
  };
  Groups::iterator group_for(const PrefillJob& job, const SwitchSeconds& switch_seconds, TimePoint now);
  bool guarded(ModelId model, const SwitchSeconds& switch_seconds, TimePoint now) const;

  PrefillOptions options_;
  Groups groups_;
  std::map<ModelId, OfModel> models_;  // that have groups
  std::unordered_map<RequestId, Groups::iterator> places_;
};

}  // namespace shoal
