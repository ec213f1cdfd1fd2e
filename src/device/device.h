// A device's memory: pages that move between models without being copied, and copies in the order of their urgency.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "base/memory_file.h"
#include "base/page.h"
#include "base/status.h"
#include "device/device_span.h"

namespace shoal {

// Pages [first, first + count) of a device.
struct PageRange {
  uint32_t first = 0;
  uint32_t count = 0;
};

// Memory in pages, of a device or of the host. Thread-safe.
class PagedMemory {
 public:
  virtual ~PagedMemory() = default;

  virtual uint32_t pages() const = 0;

  // These pages, in this order, as one contiguous piece of memory. A single range is free; several cost a move of page
  // tables each, never a copy. REQUIRES: no page is part of another mapping.
  virtual StatusOr<DeviceSpan> map(std::span<const PageRange> pages) = 0;

  // Ends a mapping; the contents of its pages are lost to the caller. REQUIRES: `memory` was returned by map().
  virtual void unmap(DeviceSpan memory) = 0;

  // The memory of these pages goes back to the machine; they are as pages that were never touched. REQUIRES: none is mapped.
  virtual void give_back(std::span<const PageRange> pages) = 0;
};

// Copies of different lanes overtake one another, even between two pieces; within a lane they are done in order.
enum class CopyLane : uint8_t { kKvIn, kWeightsIn, kKvOut };  // the most urgent first
constexpr size_t kCopyLanes = 3;

struct CopyJob {
  struct Piece {
    DeviceAddress to, from;
    uint64_t bytes = 0;
  };
  CopyLane lane = CopyLane::kKvOut;
  std::vector<Piece> pieces;
  std::function<void()> done;  // on a thread of the device, after the last byte. Not called for what end_copies() gave up
};

class Device : public PagedMemory {
 public:
  // How many of these pages have no memory yet.
  virtual uint32_t fresh(std::span<const PageRange> pages) = 0;

  // Gives its memory to one more page that was never mapped, of the `ahead` ones after all that were: the first write to fresh
  // memory costs up to seconds per GiB on a virtual machine. Takes some milliseconds, for idle moments. False: nothing to do.
  virtual bool populate(uint32_t ahead) = 0;

  // Memory beside the pages, zero, aligned to 64 bytes, as long as the device lives. ResourceExhausted without memory.
  virtual StatusOr<DeviceSpan> allocate(uint64_t bytes) = 0;

  // Between memory of this device and of the host, either way, or within either. Both sides stay as they are until
  // `done`. Any thread.
  virtual void copy(CopyJob job) = 0;

  // Waits while copies of kKvIn are under way: for those who use the machine's memory for what can wait. Any thread.
  virtual void give_way() const = 0;

  // Ends the copy under way between two pieces and gives up what has not begun; none is taken any more.
  virtual void end_copies() = 0;

  // Pages of the host, for what copies of this device bring away and back: page i at byte i * kPageBytes of `memory`, for other
  // processes to read, or (null) in memory of this process alone. They may outlive the device.
  virtual StatusOr<std::unique_ptr<PagedMemory>> make_host_tier(uint32_t pages, std::shared_ptr<const MemoryFile> memory) = 0;
};

}  // namespace shoal
