#include "experts/region.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/bytes.h"

namespace shoal {

static_assert(std::atomic<uint64_t>::is_always_lock_free && sizeof(std::atomic<uint64_t>) == 8);

uint64_t Region::total(const SlotSizes& sizes) { return kPage + sizes.lanes * round_up(sizes.half_bytes, kPage); }

Region::Region(std::byte* base, uint64_t bytes, std::shared_ptr<const MemoryFile> file, const SlotSizes& sizes)
    : base_(base), bytes_(bytes), file_(std::move(file)), half_bytes_(sizes.half_bytes), stride_(round_up(sizes.half_bytes, kPage)) {}

Region::~Region() { ::munmap(base_, bytes_); }

StatusOr<std::unique_ptr<Region>> Region::make_private(const SlotSizes& sizes) {
  const uint64_t bytes = total(sizes);
  void* const base = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (base == MAP_FAILED) return resource_exhausted("no memory of ", format_bytes(bytes), " for slots");
  return std::unique_ptr<Region>(new Region(static_cast<std::byte*>(base), bytes, nullptr, sizes));
}

StatusOr<std::unique_ptr<Region>> Region::make_shared(const SlotSizes& sizes) {
  ASSIGN_OR_RETURN(std::shared_ptr<const MemoryFile> file, MemoryFile::make("shoal-slots", total(sizes)));
  return map(std::move(file), sizes);
}

StatusOr<std::unique_ptr<Region>> Region::map(int fd, const SlotSizes& sizes) {
  ASSIGN_OR_RETURN(std::shared_ptr<const MemoryFile> file, MemoryFile::of(fd));
  return map(std::move(file), sizes);
}

StatusOr<std::unique_ptr<Region>> Region::map(std::shared_ptr<const MemoryFile> file, const SlotSizes& sizes) {
  const uint64_t bytes = total(sizes);
  if (file->bytes() != bytes) return invalid_argument("the peer's memory has ", file->bytes(), " bytes instead of ", bytes);
  void* const base = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file->fd(), 0);
  if (base == MAP_FAILED) return resource_exhausted("no addresses to map ", format_bytes(bytes), " of slots: ", std::strerror(errno));
  return std::unique_ptr<Region>(new Region(static_cast<std::byte*>(base), bytes, std::move(file), sizes));
}

}  // namespace shoal
