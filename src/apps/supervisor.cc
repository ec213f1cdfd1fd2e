#include "apps/supervisor.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "apps/signals.h"
#include "apps/verbs.h"
#include "base/clock.h"
#include "base/log.h"

namespace shoal {
namespace {

constexpr Duration kLook = std::chrono::milliseconds(100);
constexpr Duration kRestartMin = std::chrono::milliseconds(200), kRestartMax = std::chrono::seconds(5);
constexpr Duration kLivedWell = std::chrono::seconds(10);
constexpr int kFailuresAtStart = 3;  // in a row, by one that never lived well: it never will
constexpr Duration kLastWords = std::chrono::seconds(5);

// Other threads may run: between fork and exec nothing is called that takes memory or a lock.
pid_t start(const ProcessSpec& spec) {
  std::vector<std::string> words = {"shoal"};
  words.insert(words.end(), spec.words.begin(), spec.words.end());
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  const pid_t parent = ::getpid();
  const pid_t pid = ::fork();
  if (pid != 0) return pid;
  ::prctl(PR_SET_PDEATHSIG, SIGTERM);  // they end with who watches them
  if (::getppid() != parent) ::_exit(kExitFailed);
  sigset_t none;
  sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  ::setpgid(0, 0);  // Ctrl-C is for the watcher, which ends them in order
  ::execv("/proc/self/exe", argv.data());
  ::_exit(kExitFailed);
}

}  // namespace

Supervisor::Supervisor(std::vector<ProcessSpec> specs) {
  for (ProcessSpec& spec : specs) children_.push_back({.spec = std::move(spec), .pause = kRestartMin});
}

Supervisor::~Supervisor() {
  for (const Child& child : children_) {
    if (child.pid > 0) ::kill(child.pid, SIGKILL), ::waitpid(child.pid, nullptr, 0);
  }
}

void Supervisor::add(ProcessSpec spec) {
  std::lock_guard lock(mutex_);
  children_.insert(std::prev(children_.end()), {.spec = std::move(spec), .needed = false, .pause = kRestartMin});
}

void Supervisor::remove(const std::string& name) {
  std::lock_guard lock(mutex_);
  for (auto child = children_.begin(); child != children_.end(); ++child) {
    if (child->spec.name != name || child->leaves) continue;
    if (child->pid <= 0) {
      children_.erase(child);
      return;
    }
    child->leaves = true;
    child->kill_at = steady_now() + kLastWords;
    ::kill(child->pid, SIGTERM);
    return;
  }
}

bool Supervisor::has(const std::string& name) const {
  std::lock_guard lock(mutex_);
  return std::any_of(children_.begin(), children_.end(), [&](const Child& child) { return child.spec.name == name; });
}

void Supervisor::set_flag(const std::string& flag, const std::string& value) {
  const std::string begin = absl::StrCat("--", flag, "=");
  std::lock_guard lock(mutex_);
  for (std::string& word : children_.back().spec.words) {
    if (word.starts_with(begin)) word = begin + value;
  }
}

StatusOr<int> Supervisor::run(Duration patience) {
  while (true) {
    RETURN_IF_ERROR(start_due());
    const Signal signal = wait_signal(kLook);
    if (signal == Signal::kStop) return end(patience);
    if (signal == Signal::kReload) reload();
    ASSIGN_OR_RETURN(const bool asked, reap());
    if (asked) return end(patience);
  }
}

// The gateway asks the nodes.
void Supervisor::reload() {
  std::lock_guard lock(mutex_);
  if (children_.back().pid > 0) ::kill(children_.back().pid, SIGHUP);
}

Status Supervisor::start_due() {
  std::lock_guard lock(mutex_);
  const TimePoint now = steady_now();
  for (Child& child : children_) {
    if (child.leaves && now >= child.kill_at) ::kill(child.pid, SIGKILL);
    if (child.pid == 0 && now >= child.start_at) {
      child.pid = start(child.spec);
      child.started = now;
      if (child.pid < 0) return unavailable("no process can be started: ", std::strerror(errno));
      log_info("started ", child.spec.name, ", process ", child.pid);
    }
    child.lived |= child.pid > 0 && now - child.started > kLivedWell;
  }
  return OkStatus();
}

// Whether the last one ended as it was asked to (`shoal stop`): then all do.
StatusOr<bool> Supervisor::reap() {
  std::lock_guard lock(mutex_);
  for (auto next = children_.begin(); next != children_.end();) {
    const auto child = next++;
    int status = 0;
    if (child->pid <= 0 || ::waitpid(child->pid, &status, WNOHANG) != child->pid) continue;
    child->pid = 0;
    if (child->leaves) {
      log_info(child->spec.name, " ended");
      children_.erase(child);
    } else if (&*child == &children_.back() && WIFEXITED(status) && WEXITSTATUS(status) == kExitOk) {
      return true;
    } else if (const Status why = ended(*child, status); !why.ok()) {
      if (child->needed) return why;
      log_warning(why.message());
      children_.erase(child);
    }
  }
  return false;
}

// By itself: when it is started again, or why it is not.
Status Supervisor::ended(Child& child, int status) {
  const TimePoint now = steady_now();
  const bool at_start = now - child.started < kLivedWell && !child.lived;
  child.failures = at_start ? child.failures + 1 : 0;
  child.pause = at_start ? std::min(child.pause * 2, kRestartMax) : kRestartMin;
  child.start_at = now + child.pause;
  const std::string how = WIFSIGNALED(status) ? absl::StrCat("was ended by signal ", WTERMSIG(status)) : absl::StrCat("ended with ", WEXITSTATUS(status));
  const bool wrong_use = WIFEXITED(status) && WEXITSTATUS(status) == kExitUsage;
  if (wrong_use || child.failures >= kFailuresAtStart) return unavailable(child.spec.name, " ", how, " and cannot run; see the log above");
  log_warning(child.spec.name, " ", how, "; it is started again");
  return OkStatus();
}

// The gateway first, so that its answers end on nodes that live.
int Supervisor::end(Duration patience) {
  std::lock_guard lock(mutex_);
  for (auto child = children_.rbegin(); child != children_.rend(); ++child) {
    if (child->pid <= 0) continue;
    ::kill(child->pid, SIGTERM);
    const TimePoint until = steady_now() + (child == children_.rbegin() ? patience : Duration(0)) + kLastWords;
    while (::waitpid(child->pid, nullptr, WNOHANG) == 0 && steady_now() < until) {
      if (wait_stop_signal(kLook)) ::kill(child->pid, SIGTERM);
    }
    if (::kill(child->pid, 0) == 0) ::kill(child->pid, SIGKILL), ::waitpid(child->pid, nullptr, 0);
    child->pid = 0;
  }
  log_info("stopped");
  return kExitOk;
}

}  // namespace shoal
