#include "apps/signals.h"

#include <unistd.h>

#include <cerrno>
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

timespec to_timespec(Duration timeout) {
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(timeout);
  return {static_cast<time_t>(seconds.count()), static_cast<long>((timeout - seconds).count())};
}

// The terminal that was there is no more; a pipe or a file never was one.
bool terminal_is_gone() { return isatty(STDIN_FILENO) == 0 && errno == EIO; }

}  // namespace

void block_stop_signals() {
  const sigset_t set = stop_signals();
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
  std::signal(SIGPIPE, SIG_IGN);
}

bool wait_stop_signal(Duration timeout) {
  const sigset_t set = stop_signals();
  const timespec wait = to_timespec(timeout);
  return sigtimedwait(&set, nullptr, &wait) > 0;
}

void block_reload_signal() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGHUP);
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
}

Signal wait_signal(Duration timeout) {
  sigset_t set = stop_signals();
  sigaddset(&set, SIGHUP);
  const timespec wait = to_timespec(timeout);
  const int got = sigtimedwait(&set, nullptr, &wait);
  if (got <= 0) return Signal::kNone;
  return got == SIGHUP && !terminal_is_gone() ? Signal::kReload : Signal::kStop;
}

}  // namespace shoal
