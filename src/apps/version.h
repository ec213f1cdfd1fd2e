// What this binary is.
#pragma once

#include <string>

namespace shoal {

std::string version_number();  // "0.1.0"
std::string version_line();    // "0.1.0 (commit, compiler, features)"
std::string version_json();

}  // namespace shoal
