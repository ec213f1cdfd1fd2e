// What a node's switches took, as they happen: one record per switch, closed at the first step after it. Pure.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "base/switch_record.h"

namespace shoal {

class SwitchLog {
 public:
  // Time has come to `now`; `idle`: no step ran since the call before. REQUIRES: called before the others at an instant.
  void advance(TimePoint now, bool idle, const std::function<bool(ModelId)>& waits);

  // Room is made for this model from now on; repeated while it has to wait for that.
  void planned(ModelId model, TimePoint asked, TimePoint now);
  void dropped(ModelId model, ModelId victim);
  void begun(ModelId model, bool ahead, TimePoint now);
  // `end`: kServed if requests wait for it, and then its first step closes the record; but not before packed(), if that is
  // to follow.
  void ready(ModelId model, const LoadStages& stages, SwitchEnd end, bool packing, TimePoint now);
  void packed(ModelId model, const LoadStages& stages);  // of the whole load
  void swap_in_begun(ModelId model, uint64_t move, TimePoint now);
  void swap_in_ended(ModelId model, uint64_t move, TimePoint now);  // ignored for any other move
  void stepped(ModelId model, TimePoint now);
  // Another model is to come first, or the model's weights left again before a step.
  void abandoned(ModelId model);

  // Closed since the last call, in order, each handed out once; the oldest are lost beyond kRecordsMax.
  std::vector<SwitchRecord> take();
  bool empty() const { return closed_.empty(); }

  static constexpr size_t kRecordsMax = 256;

 private:
  struct Open {
    SwitchRecord record;
    bool packing = false;
    std::optional<SwitchEnd> end;  // known, and the record waits for packed()
    std::set<uint64_t> swaps;   // under way
    TimePoint swap_began{};     // the first of those
  };
  void close(ModelId model, SwitchEnd end);
  void close_if_packed(ModelId model, SwitchEnd end);

  std::map<ModelId, Open> open_;
  std::deque<SwitchRecord> closed_;
  TimePoint at_{};
};

}  // namespace shoal
