#include "gateway/listen.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/time.h"

namespace shoal {
namespace {

constexpr auto kLockPause = std::chrono::milliseconds(10);
constexpr int kLockTries = 500;
constexpr mode_t kOwnerOnly = 0700;

class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() {
    if (fd_ >= 0) close(fd_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return fd_; }
  int release() { return std::exchange(fd_, -1); }

 private:
  int fd_;
};

int stream_socket() { return socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0); }

sockaddr_un address_of(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, sizeof(address.sun_path) - 1);
  return address;
}

// Held by whoever looks at a path of the folder and takes it; ends with the descriptor. No file of its own is left behind.
StatusOr<std::unique_ptr<Descriptor>> lock_folder(const std::string& folder) {
  auto lock = std::make_unique<Descriptor>(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (lock->get() < 0) return unavailable("the folder ", folder, " cannot be opened: ", std::strerror(errno));
  for (int i = 0; i < kLockTries; ++i) {
    if (flock(lock->get(), LOCK_EX | LOCK_NB) == 0) return lock;
    if (errno != EWOULDBLOCK && errno != EINTR) return unavailable("the folder ", folder, " cannot be locked: ", std::strerror(errno));
    std::this_thread::sleep_for(kLockPause);
  }
  return unavailable("the folder ", folder, " stays locked by another process");
}

// OK if the path is free now; AlreadyExists while somebody listens there. REQUIRES: the folder is locked.
Status free_path(const std::string& path) {
  struct stat found {};
  if (lstat(path.c_str(), &found) != 0) return OkStatus();  // what else may be wrong, bind() will say
  if (!S_ISSOCK(found.st_mode)) return unavailable("there is a file that is no socket");
  const SocketOwner owner = who_listens(path);
  if (owner.error == 0) return absl::AlreadyExistsError(owner.pid > 0 ? absl::StrCat("process ", owner.pid, " listens there") : "another process listens there");
  if (owner.error != ECONNREFUSED && owner.error != ENOENT) {
    return unavailable("the socket that is there cannot be asked whether it is in use: ", std::strerror(owner.error));
  }
  return unlink(path.c_str()) == 0 || errno == ENOENT ? OkStatus() : unavailable("a socket that nobody uses cannot be removed: ", std::strerror(errno));
}

}  // namespace

Status cannot_listen(const std::string& host, uint16_t port, int error, const ListenFlags& flags) {
  const auto because = [&](const auto&... advice) {
    return unavailable("cannot listen on ", host, ":", port, ": ", std::strerror(error), advice...);
  };
  switch (error) {
    case EADDRINUSE: return because("; choose another ", std::string(flags.port), " or stop what uses it");
    case EADDRNOTAVAIL: return because("; it is no address of this machine: choose another ", std::string(flags.host), ", such as 127.0.0.1, or 0.0.0.0 for all of them");
    case EACCES: return because("; ports below 1024 are for processes with the right to them (CAP_NET_BIND_SERVICE): choose a ", std::string(flags.port), " from 1024 on");
    default: return because();
  }
}

SocketOwner who_listens(const std::string& path) {
  const Descriptor probe(stream_socket());
  const sockaddr_un address = address_of(path);
  if (probe.get() < 0) return {.error = errno};
  if (connect(probe.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) {
    return {.error = errno == EAGAIN ? 0 : errno};  // EAGAIN: it has no room for a caller
  }
  ucred peer{};
  socklen_t size = sizeof(peer);
  const bool known = getsockopt(probe.get(), SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0;
  return {.pid = known ? peer.pid : 0};
}

StatusOr<std::unique_ptr<UnixListener>> UnixListener::open(const std::string& path, bool owner_only, const ListenFlags& flags) {
  const std::string flag(flags.path);
  sockaddr_un address = address_of(path);
  if (path.size() >= sizeof(address.sun_path)) {
    return invalid_argument(flag, " ", path, ": has ", path.size(), " bytes, a socket's path has at most ", sizeof(address.sun_path) - 1, "; choose a shorter one");
  }
  const auto refuse = [&](absl::string_view why, const char* more = "") { return unavailable("cannot listen on ", path, ": ", why, "; choose another ", flag, more); };
  const std::string folder = std::filesystem::path(path).parent_path().string();
  const auto lock = lock_folder(folder.empty() ? "." : folder);
  if (!lock.ok()) return refuse(lock.status().message());
  if (const Status free = free_path(path); !free.ok()) return refuse(free.message(), absl::IsAlreadyExists(free) ? ", or stop it" : "");
  Descriptor socket(stream_socket());
  if (socket.get() < 0) return refuse(std::strerror(errno));
  if (owner_only) fchmod(socket.get(), kOwnerOnly);  // what bind() makes has this mode, less the umask
  if (bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) return refuse(std::strerror(errno));
  std::unique_ptr<UnixListener> self(new UnixListener(path, socket.release()));
  struct stat made {};
  if (lstat(path.c_str(), &made) != 0) return refuse(std::strerror(errno));
  self->device_ = made.st_dev;
  self->inode_ = made.st_ino;
  if (listen(self->socket_, SOMAXCONN) != 0) return refuse(std::strerror(errno));
  return self;
}

UnixListener::~UnixListener() {
  struct stat found {};
  const bool own = inode_ != 0 && lstat(path_.c_str(), &found) == 0 && found.st_dev == device_ && found.st_ino == inode_;
  if (own) unlink(path_.c_str());
  if (socket_ >= 0) close(socket_);
}

int UnixListener::release() { return std::exchange(socket_, -1); }

}  // namespace shoal
