// Pages of the host's memory, as transparent huge pages where the system gives them: moving one to another place takes about 5 us,
// where touching the same bytes anew as small pages would take longer than copying them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "base/memory_file.h"
#include "base/status.h"
#include "device/device.h"

namespace shoal {

// Reserves address space only; a page takes memory when it is first written. Thread-safe.
class HostPages {
 public:
  // Page i lies at byte i * kPageBytes of `memory`, for other processes to read; null: in memory of this process alone, whose first
  // touch is cheaper. ResourceExhausted, naming the limit, if the addresses cannot be had. REQUIRES: `memory` has that many pages.
  static StatusOr<std::unique_ptr<HostPages>> make(uint32_t pages, std::shared_ptr<const MemoryFile> memory = nullptr);
  ~HostPages();
  HostPages(const HostPages&) = delete;
  HostPages& operator=(const HostPages&) = delete;

  uint32_t pages() const { return pages_; }

  // As PagedMemory's and Device's.
  StatusOr<std::span<std::byte>> map(std::span<const PageRange> pages);
  void unmap(std::span<std::byte> memory);
  uint32_t fresh(std::span<const PageRange> pages);
  void give_back(std::span<const PageRange> pages);
  bool populate(uint32_t ahead);

 private:
  struct Window {
    std::byte* reservation = nullptr;
    size_t reservation_bytes = 0;
    std::vector<PageRange> ranges;
  };

  HostPages(std::byte* reservation, size_t reservation_bytes, uint32_t pages, std::shared_ptr<const MemoryFile> memory);
  std::byte* home(uint32_t page) const { return home_ + page * kPageBytes; }
  static Status move(std::byte* from, std::byte* to, uint32_t count);
  void bring_home(std::byte* from, const std::vector<PageRange>& ranges);

  // Every page has a home address. A mapping of one range is that address; one of several ranges is a window of fresh
  // addresses that the pages' tables are moved to. The home stays reserved meanwhile (MREMAP_DONTUNMAP leaves its tables empty),
  // so that nothing else of the process can settle there.
  std::byte* const reservation_;
  const size_t reservation_bytes_;
  const uint32_t pages_;
  const std::shared_ptr<const MemoryFile> memory_;
  std::byte* home_;
  std::mutex mutex_;
  std::map<std::byte*, Window> windows_;
  uint32_t mapped_to_ = 0;     // no page from here on was ever mapped
  uint32_t populate_max_ = pages_;  // from here on memory is wanted elsewhere
  uint32_t populated_to_ = 0;  // the pages before it have their memory, or are their users' matter
};

}  // namespace shoal
