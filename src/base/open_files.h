// How many files, sockets among them, this process may have open.
#pragma once

#include <cstdint>

namespace shoal {

// Asks for as many as the system lets it ask for; how many that are, 0: not known.
uint64_t raise_open_files();

}  // namespace shoal
