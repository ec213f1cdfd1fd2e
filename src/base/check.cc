#include "base/check.h"

#include <cstdio>
#include <cstdlib>

namespace shoal {

void check_failed(const char* file, int line, const char* expression, const std::string& detail) {
  std::fprintf(stderr, "%s:%d: invariant broken: %s%s%s\n", file, line, expression, detail.empty() ? "" : ": ",
               detail.c_str());
  std::abort();
}

}  // namespace shoal
