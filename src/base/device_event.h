// What a node's device did and when, as values: what a timeline is drawn from.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/ids.h"
#include "base/time.h"

namespace shoal {

enum class DeviceAct : uint8_t {
  kPrefill,  // steps that computed prompts only
  kDecode,   // one token per sequence
  kMixed,    // both
  kKvOut,    // KV to the host tier
  kKvIn,     // and back
  kDrop,     // weights left the device; an instant
};
constexpr uint8_t kDeviceActs = 6;
std::string_view device_act_name(DeviceAct act);

// Steps of one model and kind that followed each other, or one copy of KV. Instants are of the node's clock.
struct DeviceEvent {
  DeviceAct act = DeviceAct::kDecode;
  ModelId model;
  TimePoint begin{};
  TimePoint end{};
  uint64_t steps = 0;    // of a turn
  uint64_t amount = 0;   // tokens computed by a turn, bytes of a copy
  friend bool operator==(const DeviceEvent&, const DeviceEvent&) = default;
};

}  // namespace shoal
