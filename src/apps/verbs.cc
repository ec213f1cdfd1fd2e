#include "apps/verbs.h"

#include <cstdio>

#include "apps/terminal.h"
#include "base/log.h"

namespace shoal {

int fail(const std::string& what) {
  std::fprintf(stderr, "error: %s\n", one_line(what).c_str());
  return kExitFailed;
}

int exit_code(const Status& status) {
  if (status.ok()) return kExitOk;
  if (status.code() != StatusCode::kCancelled) return fail(std::string(status.message()));
  note(std::string(status.message()));
  return kExitInterrupted;
}

}  // namespace shoal
