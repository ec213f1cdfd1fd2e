#include "base/status.h"

namespace shoal {

Status annotate(const Status& status, std::string_view where) {
  if (status.ok()) return status;
  return Status(status.code(), absl::StrCat(std::string(where), ": ", status.message()));
}

}  // namespace shoal
