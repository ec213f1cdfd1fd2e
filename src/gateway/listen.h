// Where a server listens: sockets at addresses and at paths, and what to do about one that cannot be had.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "base/status.h"

namespace shoal {

// How the errors call what the user gave.
struct ListenFlags {
  std::string_view host = "--host", port = "--port", path = "--uds";
};
constexpr ListenFlags kAdminListenFlags = {.host = "--admin-host", .port = "--admin-port", .path = "--admin-socket"};

// The error of an address that cannot be listened at, for the errno that says why: its cause, and the flag that mends it.
Status cannot_listen(const std::string& host, uint16_t port, int error, const ListenFlags& flags);

// Who is at the other end of a socket's path, asked by connecting to it.
struct SocketOwner {
  int error = 0;  // 0: somebody listens; else why nobody was reached, ECONNREFUSED of a file that was left behind
  pid_t pid = 0;  // who listens; 0: this process cannot see that
};
SocketOwner who_listens(const std::string& path);

// A unix socket that listens, and its file.
class UnixListener {
 public:
  // What a process that is gone has left at the path is replaced, with `owner_only` by a socket for this user alone.
  // Unavailable if a process listens there, which is named, or if something else is there. Of several that start at once
  // one gets the path.
  static StatusOr<std::unique_ptr<UnixListener>> open(const std::string& path, bool owner_only, const ListenFlags& flags);
  // Removes the file, unless it has become another's. REQUIRES: the socket is still open, so that nobody takes the path
  // meanwhile.
  ~UnixListener();
  UnixListener(const UnixListener&) = delete;
  UnixListener& operator=(const UnixListener&) = delete;

  // The socket, which is the caller's to close from now on.
  int release();

 private:
  UnixListener(std::string path, int socket) : path_(std::move(path)), socket_(socket) {}

  const std::string path_;
  int socket_;       // -1: released
  dev_t device_ = 0;
  ino_t inode_ = 0;  // 0: no file was made
};

}  // namespace shoal
