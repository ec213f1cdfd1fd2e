#include "transport/local_socket.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

namespace shoal {
namespace {

constexpr size_t kDescriptorsMax = 4;
constexpr int kBacklog = 64;

struct UnixAddress {
  sockaddr_un name{};
  socklen_t size = 0;
};

StatusOr<UnixAddress> unix_address(const std::string& address) {
  UnixAddress result;
  result.name.sun_family = AF_UNIX;
  if (address.empty() || address.size() >= sizeof(result.name.sun_path)) return invalid_argument("'", address, "' is no path of a socket");
  std::memcpy(result.name.sun_path, address.data(), address.size());
  if (address[0] == '@') result.name.sun_path[0] = '\0';
  result.size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + address.size() + (address[0] == '@' ? 0 : 1));
  return result;
}

// One byte, with room for descriptors beside it.
struct DescriptorMessage {
  explicit DescriptorMessage(size_t room = CMSG_SPACE(sizeof(int) * kDescriptorsMax)) {
    header.msg_iov = &data;
    header.msg_iovlen = 1;
    header.msg_control = control;
    header.msg_controllen = room;
  }
  char byte = 0;
  iovec data{&byte, 1};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * kDescriptorsMax)] = {};
  msghdr header{};
};

bool own_user(int fd) {
  ucred peer{};
  socklen_t size = sizeof(peer);
  return ::getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 && (peer.uid == ::geteuid() || peer.uid == 0);
}

}  // namespace

LocalSocket::~LocalSocket() { ::close(fd_); }
void LocalSocket::shut_down() { ::shutdown(fd_, SHUT_RDWR); }

void LocalSocket::set_timeout(Duration of_reads, Duration of_writes) const {
  for (const auto& [option, most] : {std::pair(SO_RCVTIMEO, of_reads), std::pair(SO_SNDTIMEO, of_writes)}) {
    const timeval time{.tv_sec = most.count() / 1'000'000'000, .tv_usec = most.count() % 1'000'000'000 / 1000};
    ::setsockopt(fd_, SOL_SOCKET, option, &time, sizeof(time));
  }
}

Status LocalSocket::write(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return unavailable("the stream to the peer broke");
    bytes = bytes.subspan(static_cast<size_t>(n));
  }
  return OkStatus();
}

Status LocalSocket::read(std::span<std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::recv(fd_, bytes.data(), bytes.size(), 0);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return unavailable("the stream to the peer broke");
    bytes = bytes.subspan(static_cast<size_t>(n));
  }
  return OkStatus();
}

Status LocalSocket::send_descriptors(std::span<const int> fds) {
  DescriptorMessage message(CMSG_SPACE(fds.size_bytes()));
  cmsghdr* const head = CMSG_FIRSTHDR(&message.header);
  head->cmsg_level = SOL_SOCKET;
  head->cmsg_type = SCM_RIGHTS;
  head->cmsg_len = CMSG_LEN(fds.size_bytes());
  std::memcpy(CMSG_DATA(head), fds.data(), fds.size_bytes());
  return ::sendmsg(fd_, &message.header, MSG_NOSIGNAL) == 1 ? OkStatus() : unavailable("descriptors could not be sent: ", std::strerror(errno));
}

StatusOr<std::vector<int>> LocalSocket::receive_descriptors(size_t count) {
  DescriptorMessage message;
  const ssize_t n = ::recvmsg(fd_, &message.header, MSG_CMSG_CLOEXEC);
  std::vector<int> fds;
  const cmsghdr* const head = n == 1 ? CMSG_FIRSTHDR(&message.header) : nullptr;
  if (head != nullptr && head->cmsg_level == SOL_SOCKET && head->cmsg_type == SCM_RIGHTS) {
    fds.resize((head->cmsg_len - CMSG_LEN(0)) / sizeof(int));
    std::memcpy(fds.data(), CMSG_DATA(head), fds.size() * sizeof(int));
  }
  if (fds.size() == count) return fds;
  for (const int fd : fds) ::close(fd);
  return unavailable("the peer sent ", fds.size(), " descriptors instead of ", count);
}

StatusOr<std::unique_ptr<LocalSocket>> unix_connect(const std::string& address) {
  ASSIGN_OR_RETURN(const UnixAddress to, unix_address(address));
  const int fd = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return unavailable(address, ": ", std::strerror(errno));
  auto socket = std::make_unique<LocalSocket>(fd);
  if (::connect(fd, reinterpret_cast<const sockaddr*>(&to.name), to.size) != 0) return unavailable(address, ": ", std::strerror(errno));
  if (!own_user(fd)) return absl::PermissionDeniedError(absl::StrCat(address, ": a process of another user listens there"));
  return socket;
}

StatusOr<std::unique_ptr<LocalListener>> LocalListener::start(const std::string& address) {
  ASSIGN_OR_RETURN(const UnixAddress at, unix_address(address));
  const int fd = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return unavailable(address, ": ", std::strerror(errno));
  const std::string path = address[0] == '@' ? "" : address;
  if (!path.empty()) {
    if (unix_connect(path).ok()) {
      ::close(fd);
      return unavailable(address, ": another process listens there");
    }
    ::unlink(path.c_str());
  }
  if (::bind(fd, reinterpret_cast<const sockaddr*>(&at.name), at.size) != 0 || ::listen(fd, kBacklog) != 0) {
    const Status why = unavailable(address, ": ", std::strerror(errno));
    ::close(fd);
    return why;
  }
  return std::unique_ptr<LocalListener>(new LocalListener(fd, ::eventfd(0, EFD_CLOEXEC), path));
}

LocalListener::~LocalListener() {
  ::close(fd_);
  ::close(wake_);
  if (!path_.empty()) ::unlink(path_.c_str());
}

std::unique_ptr<LocalSocket> LocalListener::accept() {
  while (!over_) {
    pollfd wait[2] = {{.fd = fd_, .events = POLLIN, .revents = 0}, {.fd = wake_, .events = POLLIN, .revents = 0}};
    if (::poll(wait, 2, -1) < 0 && errno != EINTR) return nullptr;
    if (over_) break;
    const int fd = ::accept4(fd_, nullptr, nullptr, SOCK_CLOEXEC);
    if (fd < 0) {
      if (errno == EMFILE || errno == ENFILE || errno == ENOMEM) ::poll(nullptr, 0, 50);  // others may close some
      continue;
    }
    auto socket = std::make_unique<LocalSocket>(fd);
    if (own_user(fd)) return socket;
  }
  return nullptr;
}

void LocalListener::shut_down() {
  over_ = true;
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t n = ::write(wake_, &one, sizeof(one));
}

}  // namespace shoal
