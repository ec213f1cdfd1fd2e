#include "device/host_pages.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/bytes.h"
#include "base/check.h"

namespace shoal {
namespace {

constexpr int kPopulateWrite = 23;  // MADV_POPULATE_WRITE, of Linux 5.14; older headers lack it

// The first page's address from here on.
std::byte* at_page(std::byte* address) {
  const auto at = reinterpret_cast<uintptr_t>(address);
  return address + (round_up(at, kPageBytes) - at);
}

Status system_error(const char* what) { return resource_exhausted(what, ": ", std::strerror(errno)); }

}  // namespace

HostPages::HostPages(std::byte* reservation, size_t reservation_bytes, uint32_t pages, std::shared_ptr<const MemoryFile> memory)
    : reservation_(reservation), reservation_bytes_(reservation_bytes), pages_(pages), memory_(std::move(memory)), home_(at_page(reservation)) {}

HostPages::~HostPages() {
  for (const auto& [begin, window] : windows_) munmap(window.reservation, window.reservation_bytes);
  munmap(reservation_, reservation_bytes_);
}

StatusOr<std::span<std::byte>> HostPages::map(std::span<const PageRange> pages) {
  uint64_t count = 0;
  for (const PageRange& range : pages) {
    CHECK_LE(uint64_t{range.first} + range.count, uint64_t{pages_});
    count += range.count;
  }
  CHECK_GT(count, 0u);
  {
    std::lock_guard held(mutex_);
    for (const PageRange& range : pages) mapped_to_ = std::max(mapped_to_, range.first + range.count);
  }
  const size_t bytes = count * kPageBytes;
  if (pages.size() == 1) return std::span(home(pages[0].first), bytes);

  Window window;
  window.reservation_bytes = bytes + kPageBytes;
  void* memory = mmap(nullptr, window.reservation_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) return system_error("no address space to map pages of a model");
  window.reservation = static_cast<std::byte*>(memory);
  std::byte* const begin = at_page(window.reservation);
  std::byte* to = begin;
  for (const PageRange& range : pages) {
    if (const Status moved = move(home(range.first), to, range.count); !moved.ok()) {
      bring_home(begin, window.ranges);
      munmap(window.reservation, window.reservation_bytes);
      return moved;
    }
    window.ranges.push_back(range);
    to += range.count * kPageBytes;
  }
  std::lock_guard held(mutex_);
  windows_.emplace(begin, std::move(window));
  return std::span(begin, bytes);
}

uint32_t HostPages::fresh(std::span<const PageRange> pages) {
  std::lock_guard held(mutex_);
  uint32_t count = 0;
  for (const PageRange& range : pages) {
    const uint32_t first = std::max({range.first, mapped_to_, populated_to_});
    count += range.first + range.count - std::min(first, range.first + range.count);
  }
  return count;
}

void HostPages::give_back(std::span<const PageRange> pages) {
  std::lock_guard held(mutex_);
  for (const PageRange& range : pages) {
    madvise(home(range.first), range.count * kPageBytes, memory_ == nullptr ? MADV_DONTNEED : MADV_REMOVE);  // a shared file keeps its pages otherwise
    populate_max_ = std::min(populate_max_, range.first);
  }
}

// Nobody waits for a page: where a virtual machine's host has no memory for it yet, it takes tens of milliseconds. One that is written to
// meanwhile keeps what is written; one that is moved or given back is filled for nothing.
bool HostPages::populate(uint32_t ahead) {
  uint32_t page = 0;
  {
    std::lock_guard held(mutex_);
    populated_to_ = std::max(populated_to_, mapped_to_);
    if (populated_to_ >= std::min<uint64_t>(populate_max_, uint64_t{mapped_to_} + ahead)) return false;
    page = populated_to_++;
  }
  return madvise(home(page), kPageBytes, kPopulateWrite) == 0;
}

void HostPages::unmap(std::span<std::byte> memory) {
  if (memory.data() >= home_ && memory.data() < home_ + pages_ * kPageBytes) return;
  Window window;
  {
    std::lock_guard held(mutex_);
    const auto found = windows_.find(memory.data());
    CHECK(found != windows_.end());
    window = std::move(found->second);
    windows_.erase(found);
  }
  bring_home(memory.data(), window.ranges);
  munmap(window.reservation, window.reservation_bytes);
}

Status HostPages::move(std::byte* from, std::byte* to, uint32_t count) {
  const size_t bytes = count * kPageBytes;
  void* moved = mremap(from, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED | MREMAP_DONTUNMAP, to);
  return moved == to ? OkStatus() : system_error("pages could not be moved (Linux 5.13 or later is needed)");
}

// Moves the first ranges of a window back. Failing here would lose the pages: the process has run out of mappings.
void HostPages::bring_home(std::byte* from, const std::vector<PageRange>& ranges) {
  for (const PageRange& range : ranges) {
    CHECK(move(from, home(range.first), range.count).ok());
    from += range.count * kPageBytes;
  }
}

StatusOr<std::unique_ptr<HostPages>> HostPages::make(uint32_t pages, std::shared_ptr<const MemoryFile> memory) {
  CHECK(memory == nullptr || memory->bytes() >= pages * kPageBytes);
  const size_t bytes = (size_t{pages} + 1) * kPageBytes;
  void* const reservation = mmap(nullptr, bytes, memory == nullptr ? PROT_READ | PROT_WRITE : PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  const auto refused = [&] {
    return annotate(system_error("the limits of this process (ulimit -d, ulimit -v) or of this machine allow no more"),
                    absl::StrCat(format_bytes(bytes), " of memory could not be reserved"));
  };
  if (reservation == MAP_FAILED) return refused();
  std::unique_ptr<HostPages> result(new HostPages(static_cast<std::byte*>(reservation), bytes, pages, std::move(memory)));
  if (result->memory_ != nullptr) {
    void* const home = mmap(result->home_, pages * kPageBytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED | MAP_NORESERVE, result->memory_->fd(), 0);
    if (home == MAP_FAILED) return refused();
  }
  madvise(reservation, bytes, MADV_HUGEPAGE);  // without it the same works, slower
  return result;
}

}  // namespace shoal
