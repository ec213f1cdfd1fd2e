// The published algorithm EPLB (DeepSeek, github.com/deepseek-ai/EPLB), hierarchical and global: which physical slot of which
// device holds which expert, every device with equally many slots. It knows neither speed, memory, failure nor what was there
// before, and may give two copies of an expert to one device; policy/expert_placement.h plans where these count. Pure.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/status.h"

namespace shoal {

struct EplbShape {
  uint32_t replicas = 0;  // physical slots of a layer, on all devices
  uint32_t groups = 1;    // of experts, of equal size; a group's experts are chosen together by group-limited routing
  uint32_t nodes = 1;     // machines
  uint32_t devices = 1;   // on all machines; slot i is on device i / (replicas / devices)
};

struct EplbLayer {
  std::vector<uint32_t> slots;                 // [replicas] expert of each physical slot
  std::vector<uint32_t> ranks;                 // [replicas] which copy of that expert it is, from 0
  std::vector<uint32_t> copies;                // [experts]
  std::vector<std::vector<uint32_t>> expert_slots;  // [experts][copies] the slots of an expert, by rank
};

// `loads`: of each expert of one layer, in any unit. Hierarchical where groups divide evenly among the machines (groups stay
// whole on a machine), else global. Arithmetic is f32 and ties go to the lower index, as published. InvalidArgument names
// what does not divide.
StatusOr<EplbLayer> eplb(std::span<const float> loads, const EplbShape& shape);

}  // namespace shoal
