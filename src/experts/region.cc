#include "experts/region.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/bytes.h"

namespace shoal {
namespace {

constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
static_assert(std::atomic<uint64_t>::is_always_lock_free && sizeof(std::atomic<uint64_t>) == 8);

}  // namespace

StatusOr<std::shared_ptr<Bell>> Bell::make() {
  const int fd = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (fd < 0) return unavailable("no eventfd: ", std::strerror(errno));
  return std::make_shared<Bell>(fd);
}

Bell::~Bell() { ::close(fd_); }

void Bell::ring() const {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t n = ::write(fd_, &one, sizeof(one));  // full: it rings already
}

void Bell::wait(Duration most) const {
  const timespec time{.tv_sec = most.count() / 1'000'000'000, .tv_nsec = most.count() % 1'000'000'000};
  pollfd wait{.fd = fd_, .events = POLLIN, .revents = 0};
  if (::ppoll(&wait, 1, &time, nullptr) != 1) return;
  uint64_t rings = 0;
  [[maybe_unused]] const ssize_t n = ::read(fd_, &rings, sizeof(rings));
}

uint64_t Region::total(const SlotSizes& sizes) { return kPage + sizes.lanes * round_up(sizes.half_bytes, kPage); }

Region::Region(std::byte* base, uint64_t bytes, int fd, const SlotSizes& sizes)
    : base_(base), bytes_(bytes), fd_(fd), half_bytes_(sizes.half_bytes), stride_(round_up(sizes.half_bytes, kPage)) {}

Region::~Region() {
  ::munmap(base_, bytes_);
  if (fd_ >= 0) ::close(fd_);
}

StatusOr<std::unique_ptr<Region>> Region::make_private(const SlotSizes& sizes) {
  const uint64_t bytes = total(sizes);
  void* const base = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (base == MAP_FAILED) return resource_exhausted("no memory of ", format_bytes(bytes), " for slots");
  return std::unique_ptr<Region>(new Region(static_cast<std::byte*>(base), bytes, -1, sizes));
}

StatusOr<std::unique_ptr<Region>> Region::make_shared(const SlotSizes& sizes) {
  const uint64_t bytes = total(sizes);
  const int fd = ::memfd_create("shoal-slots", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (fd < 0) return unavailable("no shared memory: ", std::strerror(errno));
  if (::ftruncate(fd, static_cast<off_t>(bytes)) != 0 || ::fcntl(fd, F_ADD_SEALS, kSeals) != 0) {
    ::close(fd);
    return resource_exhausted("no shared memory of ", format_bytes(bytes), ": ", std::strerror(errno));
  }
  return map(fd, sizes);
}

StatusOr<std::unique_ptr<Region>> Region::map(int fd, const SlotSizes& sizes) {
  const uint64_t bytes = total(sizes);
  struct stat info{};
  const bool whole = ::fstat(fd, &info) == 0 && static_cast<uint64_t>(info.st_size) == bytes && (::fcntl(fd, F_GET_SEALS) & kSeals) == kSeals;
  void* const base = whole ? ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) : MAP_FAILED;
  if (base == MAP_FAILED) {
    ::close(fd);
    return invalid_argument("the peer's memory is not a sealed one of ", bytes, " bytes");
  }
  return std::unique_ptr<Region>(new Region(static_cast<std::byte*>(base), bytes, fd, sizes));
}

}  // namespace shoal
