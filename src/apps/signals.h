// SIGINT and SIGTERM, received where somebody waits for them.
#pragma once

#include "base/time.h"

namespace shoal {

// Blocks both in this thread and in all threads it starts from now on, and ignores SIGPIPE.
void block_stop_signals();
// Waits for one of the two; false after `timeout`. REQUIRES: block_stop_signals().
bool wait_stop_signal(Duration timeout);

// SIGHUP as well, from now on: the question to read the settings again.
void block_reload_signal();
enum class Signal { kNone, kStop, kReload };
// As wait_stop_signal(). A SIGHUP that says that the terminal is gone means stop. REQUIRES: both were blocked.
Signal wait_signal(Duration timeout);

}  // namespace shoal
