// `serve --processes N`: the same roles as processes of this machine, started, watched and started again.
#pragma once

#include <string>
#include <vector>

#include "apps/serve_flags.h"
#include "apps/supervisor.h"
#include "base/status.h"

namespace shoal {

struct ProcessSet {
  std::vector<ProcessSpec> always;             // in the order in which they are started; the last one is what clients reach
  std::vector<ProcessSpec> more_experts;       // servers that load may call for, beyond those
  std::vector<std::string> expert_addresses;   // of all servers by their number; empty: they join the cluster by themselves
};

// A controller with the directory at `socket`, expert servers where --experts asks for some, the nodes, and the gateway. InvalidArgument for
// devices that are not as many as the nodes.
StatusOr<ProcessSet> process_specs(const ServeFlags& flags, const std::string& socket);

// Expert servers and the one process that serves with them: --experts auto:N or auto:MIN-MAX without --processes.
StatusOr<ProcessSet> expert_process_specs(const ServeFlags& flags, const std::string& socket);

// Until a signal ends it; the exit code. REQUIRES: stop and reload signals are blocked, and no other thread was started.
StatusOr<int> serve_in_processes(const ServeFlags& flags);

}  // namespace shoal
