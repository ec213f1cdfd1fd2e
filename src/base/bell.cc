#include "base/bell.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace shoal {

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

}  // namespace shoal
