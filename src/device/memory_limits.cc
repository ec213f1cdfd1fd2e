#include "device/memory_limits.h"

#include <sys/resource.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <string>
#include <string_view>
#include <utility>

#include "base/bytes.h"

namespace shoal {
namespace {

// The figure in kB of a line of a file of /proc; 0 if there is no such line.
uint64_t read_kb(const char* path, std::string_view name) {
  std::ifstream in(path);
  for (std::string line; std::getline(in, line);) {
    if (line.starts_with(name)) return std::strtoull(line.c_str() + name.size(), nullptr, 10) * kKiB;
  }
  return 0;
}

uint64_t read_number(const char* path) {
  std::ifstream in(path);
  uint64_t value = 0;
  return in >> value ? value : 0;
}

}  // namespace

uint64_t available_memory_bytes() {
  uint64_t available = read_kb("/proc/meminfo", "MemAvailable:");
  const uint64_t group_max = read_number("/sys/fs/cgroup/memory.max");  // "max" reads as 0: no limit
  const uint64_t group_used = read_number("/sys/fs/cgroup/memory.current");
  if (group_max > group_used && group_max < (1ull << 60)) available = std::min(available, group_max - group_used);
  return available;
}

ProcessMemory process_memory() {
  ProcessMemory memory{.taken = read_kb("/proc/self/status", "VmData:")};
  for (const auto& [resource, line] : {std::pair(RLIMIT_DATA, "VmData:"), std::pair(RLIMIT_AS, "VmSize:")}) {
    rlimit limit{};
    if (::getrlimit(resource, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) continue;
    const uint64_t taken = read_kb("/proc/self/status", line);
    memory.left = std::min<uint64_t>(memory.left, limit.rlim_cur > taken ? limit.rlim_cur - taken : 0);
  }
  return memory;
}

}  // namespace shoal
