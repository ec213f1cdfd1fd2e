// Files that a verb leaves behind. Whether they can be written is asked before the work begins, not after it.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "base/status.h"

namespace shoal {

// Whether `path`, given by `flag`, can be written; nothing is made or changed. "" is no file, and OK. NotFound names the folder
// that is missing: none is made, as a misspelt one would take the results with it.
Status check_output(std::string_view flag, const std::filesystem::path& path);

// Unavailable says what the system says.
Status write_output(const std::filesystem::path& path, std::string_view text);

}  // namespace shoal
