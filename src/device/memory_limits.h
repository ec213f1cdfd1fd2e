// How much memory this machine and the limits of this process leave.
#pragma once

#include <cstdint>

namespace shoal {

// Bytes of memory that programs can still have on this machine, within the limits of the control group, or 0 if unknown.
uint64_t available_memory_bytes();

// Memory of this process's own, in bytes, as its limits (RLIMIT_DATA, RLIMIT_AS) count it: what is reserved is taken.
struct ProcessMemory {
  uint64_t taken = 0;
  uint64_t left = UINT64_MAX;  // without limits
};
ProcessMemory process_memory();

}  // namespace shoal
