#include "apps/signals.h"

#include <csignal>
#include <ctime>

namespace shoal {
namespace {

sigset_t stop_signals() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGINT);
  sigaddset(&set, SIGTERM);
  return set;
}

}  // namespace

void block_stop_signals() {
  const sigset_t set = stop_signals();
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
  std::signal(SIGPIPE, SIG_IGN);
}

bool wait_stop_signal(Duration timeout) {
  const sigset_t set = stop_signals();
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(timeout);
  const timespec wait{static_cast<time_t>(seconds.count()), static_cast<long>((timeout - seconds).count())};
  return sigtimedwait(&set, nullptr, &wait) > 0;
}

}  // namespace shoal
