// Processes of this binary that are started, watched, and started again. They end with whoever watches them.
#pragma once

#include <sys/types.h>

#include <list>
#include <mutex>
#include <string>
#include <vector>

#include "base/status.h"
#include "base/time.h"

namespace shoal {

struct ProcessSpec {
  std::string name;
  std::vector<std::string> words;  // of its command line, after the binary
};

class Supervisor {
 public:
  // The last of them is the one that clients reach: when it ends as asked, all do.
  explicit Supervisor(std::vector<ProcessSpec> specs);
  ~Supervisor();

  // Until a signal, or the last one's end, ends it; the exit code. Unavailable: one of `specs` cannot run. REQUIRES: stop and reload signals
  // are blocked in every thread.
  StatusOr<int> run(Duration patience);

  // Any thread, as the next ones; run() does it within a tenth of a second. One more, without which the others go on: where it cannot run,
  // it is given up.
  void add(ProcessSpec spec);
  void remove(const std::string& name);  // asked to end, and not started again
  bool has(const std::string& name) const;
  // Of the last one, when it is started the next time.
  void set_flag(const std::string& flag, const std::string& value);

 private:
  struct Child {
    ProcessSpec spec;
    bool needed = true;
    bool leaves = false;     // it was asked to end
    TimePoint kill_at{};     // if it leaves
    pid_t pid = 0;
    TimePoint started{}, start_at{};
    Duration pause{};
    int failures = 0;        // at its start, in a row
    bool lived = false;
  };

  void reload();
  Status start_due();
  StatusOr<bool> reap();
  Status ended(Child& child, int status);
  int end(Duration patience);

  mutable std::mutex mutex_;   // of the list and what it holds
  std::list<Child> children_;
};

}  // namespace shoal
