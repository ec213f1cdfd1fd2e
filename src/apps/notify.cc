#include "apps/notify.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <utility>

#include "absl/strings/numbers.h"
#include "base/log.h"

namespace shoal {
namespace {

void notify(const std::string& text) {
  const char* path = std::getenv("NOTIFY_SOCKET");
  if (path == nullptr || (*path != '/' && *path != '@')) return;
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const size_t length = std::strlen(path);
  if (length >= sizeof(address.sun_path)) return;
  std::memcpy(address.sun_path, path, length);
  if (*path == '@') address.sun_path[0] = '\0';
  const int fd = ::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return;
  const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + length);
  if (::sendto(fd, text.data(), text.size(), MSG_NOSIGNAL, reinterpret_cast<const sockaddr*>(&address), size) < 0) log_debug("the service manager does not listen");
  ::close(fd);
}

std::chrono::microseconds watchdog_time() {
  const char* text = std::getenv("WATCHDOG_USEC");
  const char* pid = std::getenv("WATCHDOG_PID");
  int64_t us = 0, of = 0;
  if (text == nullptr || !absl::SimpleAtoi(text, &us) || us <= 0) return std::chrono::microseconds(0);
  if (pid != nullptr && absl::SimpleAtoi(pid, &of) && of != ::getpid()) return std::chrono::microseconds(0);
  return std::chrono::microseconds(us);
}

}  // namespace

void notify_ready(const std::string& status) { notify("READY=1\nSTATUS=" + status); }
void notify_stopping() { notify("STOPPING=1"); }

Watchdog::Watchdog(std::function<bool()> healthy) {
  const auto time = watchdog_time();
  if (time.count() == 0) return;
  thread_ = std::jthread([time, healthy = std::move(healthy)](const std::stop_token& stop) {
    std::mutex mutex;
    std::condition_variable_any wake;
    std::unique_lock lock(mutex);
    while (!stop.stop_requested()) {
      if (healthy()) notify("WATCHDOG=1");
      wake.wait_for(lock, stop, time / 2, [] { return false; });
    }
  });
}

}  // namespace shoal
