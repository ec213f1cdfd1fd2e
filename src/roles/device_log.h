// What a node's device does, as it happens: steps gathered into turns, copies of KV, weights that leave. Bounded, a few
// stores per step. Pure.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "base/device_event.h"

namespace shoal {

class DeviceLog {
 public:
  void at(TimePoint now) { at_ = now; }  // what the calls below happen at

  // A step goes on with the turn under way if that is of the same model and kind, was not told yet and ended a moment ago.
  void step_begun(ModelId model, DeviceAct act, uint64_t tokens);
  void step_ended(ModelId model);  // REQUIRES: one of it began
  void copy_begun(ModelId model, uint64_t move, bool to_host, uint64_t bytes);
  void copy_ended(ModelId model, uint64_t move);  // ignored for moves that did not begin
  void dropped(ModelId model) { add({DeviceAct::kDrop, model, at_, at_}); }

  // Since the last call, by their ends, each handed out once; the oldest are lost beyond kEventsMax.
  std::vector<DeviceEvent> take();
  uint64_t bytes_out() const { return bytes_out_; }  // of KV, since the start
  uint64_t bytes_in() const { return bytes_in_; }

  static constexpr size_t kEventsMax = 1024;

 private:
  void add(const DeviceEvent& event);

  TimePoint at_{};
  std::deque<DeviceEvent> events_;
  std::optional<DeviceEvent> turn_;  // under way
  std::map<ModelId, DeviceEvent> steps_;  // in flight
  std::map<std::pair<ModelId, uint64_t>, DeviceEvent> copies_;
  uint64_t bytes_out_ = 0, bytes_in_ = 0;
};

}  // namespace shoal
