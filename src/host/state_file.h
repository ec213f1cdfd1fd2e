// Small files that are kept from run to run.
#pragma once

#include <string>

#include "base/status.h"

namespace shoal {

// Writes the file anew, through a second one beside it, so that there is a whole one at any time; makes its folder. Unavailable with
// the system's reason.
Status replace_file(const std::string& path, const std::string& text);

}  // namespace shoal
