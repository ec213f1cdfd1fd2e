// Telling the service manager how this process is (sd_notify(3)): a datagram to the socket that $NOTIFY_SOCKET names. Without one
// nothing is told.
#pragma once

#include <functional>
#include <string>
#include <thread>

namespace shoal {

void notify_ready(const std::string& status);
void notify_stopping();

// As long as `healthy` says so, tells the manager twice in each $WATCHDOG_USEC that this process lives. One that does not is
// restarted by it.
class Watchdog {
 public:
  explicit Watchdog(std::function<bool()> healthy);

 private:
  std::jthread thread_;
};

}  // namespace shoal
