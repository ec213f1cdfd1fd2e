// The page of a device's pool, the unit in which memory is mapped, moved and counted.
#pragma once

#include <cstdint>

namespace shoal {

constexpr uint64_t kPageBytes = 2ull << 20;  // a huge page of x86-64 and Arm

}  // namespace shoal
