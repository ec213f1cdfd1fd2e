#include "experts/stream.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "nlohmann/json.hpp"

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

void LocalSocket::set_timeout(Duration of_reads) const {
  const timeval time{.tv_sec = of_reads.count() / 1'000'000'000, .tv_usec = of_reads.count() % 1'000'000'000 / 1000};
  ::setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &time, sizeof(time));
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

Status write_note(BulkSocket& socket, const Json& note) {
  const std::string text = dump_json(note);
  const FrameHead head{static_cast<uint32_t>(FrameKind::kNote), 0, text.size()};
  std::string bytes(reinterpret_cast<const char*>(&head), sizeof(head));
  bytes += text;
  return socket.write(std::as_bytes(std::span(bytes.data(), bytes.size())));
}

StatusOr<FrameHead> read_frame_head(BulkSocket& socket) {
  FrameHead head;
  RETURN_IF_ERROR(socket.read(std::as_writable_bytes(std::span(&head, 1))));
  const bool known = head.kind == static_cast<uint32_t>(FrameKind::kNote) || head.kind == static_cast<uint32_t>(FrameKind::kHalf);
  if (!known) return invalid_argument("the peer speaks another protocol than experts'");
  return head;
}

StatusOr<Json> read_note_body(BulkSocket& socket, const FrameHead& head) {
  if (head.kind != static_cast<uint32_t>(FrameKind::kNote) || head.bytes > kNoteBytesMax) return invalid_argument("the peer sent something else than a note");
  std::string text(head.bytes, '\0');
  RETURN_IF_ERROR(socket.read(std::as_writable_bytes(std::span(text.data(), text.size()))));
  ASSIGN_OR_RETURN(Json note, parse_json(text, {.bytes_max = kNoteBytesMax, .depth_max = 16}));
  if (!note.is_object()) return invalid_argument("the peer sent a note that is no object");
  return note;
}

StatusOr<Json> read_note(BulkSocket& socket) {
  ASSIGN_OR_RETURN(const FrameHead head, read_frame_head(socket));
  return read_note_body(socket, head);
}

Json refusal(const Status& status) { return {{"error", std::string(status.message())}, {"code", static_cast<int>(status.code())}}; }

Status status_of(const Json& note) {
  const auto error = note.find("error");
  if (error == note.end()) return OkStatus();
  const auto code = json_int(note, "code", static_cast<int>(StatusCode::kUnknown), 1, 16);
  return Status(static_cast<StatusCode>(code.ok() ? *code : 2), error->is_string() ? error->get<std::string>() : "refused");
}

}  // namespace shoal
