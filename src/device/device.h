// A device's memory: pages that move between models without being copied.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "base/page.h"
#include "base/status.h"

namespace shoal {

// Pages [first, first + count) of a device.
struct PageRange {
  uint32_t first = 0;
  uint32_t count = 0;
};

class Device {
 public:
  virtual ~Device() = default;

  virtual uint32_t pages() const = 0;

  // These pages, in this order, as one contiguous piece of memory. A single range is free; several cost a move of page
  // tables each, never a copy. REQUIRES: no page is part of another mapping.
  virtual StatusOr<std::span<std::byte>> map(std::span<const PageRange> pages) = 0;

  // How many of these pages have no memory yet.
  virtual uint32_t fresh(std::span<const PageRange> pages) = 0;

  // Gives its memory to one more page that was never mapped, of the `ahead` ones after all that were: the first write to fresh
  // memory costs up to seconds per GiB on a virtual machine. Takes some milliseconds, for idle moments. False: nothing to do.
  virtual bool populate(uint32_t ahead) = 0;

  // Ends a mapping; the contents of its pages are lost to the caller. REQUIRES: `memory` was returned by map().
  virtual void unmap(std::span<std::byte> memory) = 0;
};

// Memory of this machine, as anonymous transparent huge pages: moving one to another place takes about 10 us, where
// mapping the same bytes as small pages would take longer than copying them. Reserves address space only; a page takes
// memory when it is first written. Thread-safe.
StatusOr<std::unique_ptr<Device>> make_cpu_device(uint32_t pages);

// Bytes of memory that programs can still have on this machine, within the limits of the control group, or 0 if unknown.
uint64_t available_memory_bytes();

// Memory of this process's own, in bytes, as its limits (RLIMIT_DATA, RLIMIT_AS) count it: what is reserved is taken.
struct ProcessMemory {
  uint64_t taken = 0;
  uint64_t left = UINT64_MAX;  // without limits
};
ProcessMemory process_memory();

}  // namespace shoal
