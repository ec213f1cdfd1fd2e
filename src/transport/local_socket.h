// A blocking stream between two processes of one user on one machine: a UNIX socket, over which descriptors go.
#pragma once

#include <atomic>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "base/time.h"
#include "transport/bulk_network.h"

namespace shoal {

class LocalSocket : public BulkSocket {
 public:
  explicit LocalSocket(int fd) : fd_(fd) {}
  ~LocalSocket() override;
  Status write(std::span<const std::byte> bytes) override;
  Status read(std::span<std::byte> bytes) override;
  void shut_down() override;
  std::string_view kind() const override { return "UNIX socket"; }
  void set_timeout(Duration of_reads, Duration of_writes = Duration(0)) const;  // without a byte; 0: none

  Status send_descriptors(std::span<const int> fds);
  StatusOr<std::vector<int>> receive_descriptors(size_t count);  // the caller's, from here on

 private:
  const int fd_;
};

// "PATH", or "@NAME" for one that no file has. Unavailable with the address; PermissionDenied if another user's process listens.
StatusOr<std::unique_ptr<LocalSocket>> unix_connect(const std::string& address);

class LocalListener {
 public:
  static StatusOr<std::unique_ptr<LocalListener>> start(const std::string& address);
  ~LocalListener();
  std::unique_ptr<LocalSocket> accept();  // of this user's processes; null after shut_down()
  void shut_down();

 private:
  LocalListener(int fd, int wake, std::string path) : fd_(fd), wake_(wake), path_(std::move(path)) {}
  const int fd_, wake_;
  const std::string path_;
  std::atomic<bool> over_{false};
};

}  // namespace shoal
