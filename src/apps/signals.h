// SIGINT and SIGTERM, received where somebody waits for them.
#pragma once

#include "base/time.h"

namespace shoal {

// Blocks both in this thread and in all threads it starts from now on, and ignores SIGPIPE.
void block_stop_signals();
// Waits for one of the two; false after `timeout`. REQUIRES: block_stop_signals().
bool wait_stop_signal(Duration timeout);

}  // namespace shoal
