// A recorded run once more: production nodes are told what those of the run were told, and must answer the same, bit for
// bit and in the same order. What differs is the first thing in which this build decides otherwise than that one.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"
#include "roles/node.h"

namespace shoal {

struct ReplayCounts {
  uint64_t lives = 0;    // of nodes
  uint64_t events = 0;
  uint64_t effects = 0;
  uint64_t steps = 0, loads = 0, drops = 0, copies = 0, messages = 0;  // of these
};

class Replay {
 public:
  Replay();
  ~Replay();

  // Told about every step when it ended: whose, what it computed, and the seconds that it took in the recorded run.
  using OnStep = std::function<void(const std::string& model, const StepInput& input, double seconds)>;
  void on_step(OnStep on_step) { on_step_ = std::move(on_step); }

  // The next record of an event log (replay/event_log.h). InvalidArgument: it is none, or tells of something that cannot
  // follow what came before; Aborted: the node answers otherwise, with both answers.
  Status record(std::string_view bytes);

  const ReplayCounts& counts() const { return counts_; }

 private:
  struct Life;
  Status turn(Life& life, const Event& event, TimePoint now, const std::vector<std::string>& expected);

  std::map<NodeId, std::unique_ptr<Life>> lives_;
  ReplayCounts counts_;
  OnStep on_step_;
};

}  // namespace shoal
