// `serve --processes N`: the same roles as processes of this machine, started, watched and started again.
#pragma once

#include <string>
#include <vector>

#include "apps/serve_flags.h"
#include "base/status.h"

namespace shoal {

struct ProcessSpec {
  std::string name;
  std::vector<std::string> words;  // of its command line, after the binary
};

// A controller with the directory at `socket`, expert servers where --experts auto:N asks for some, the nodes, and the gateway, in the order
// in which they are started. InvalidArgument for devices that are not as many as the nodes.
StatusOr<std::vector<ProcessSpec>> process_specs(const ServeFlags& flags, const std::string& socket);

// Expert servers and the one process that serves with them: --experts auto:N without --processes.
StatusOr<std::vector<ProcessSpec>> expert_process_specs(const ServeFlags& flags, const std::string& socket);

// Until a signal ends it; the exit code. REQUIRES: stop and reload signals are blocked, and no other thread was started.
StatusOr<int> serve_in_processes(const ServeFlags& flags);

}  // namespace shoal
