// Reading a mapped file where it has no bytes any more (another process truncated it, or its disk fails) raises SIGBUS, which
// ends a process. Here the handler of that signal puts zeros in place of what is missing and notes it, for memory that
// was registered; any other SIGBUS goes on to whoever handled it before.
//
// The one piece of state of the whole process in Shoal: a signal's handler belongs to a process, not to an object. (Read
// by pread(2), a file needs no handler, but the copy from the system's cache costs as much as packing does.)
#pragma once

#include <cstddef>

#include "base/status.h"

namespace shoal {

// Guards [memory, memory + bytes), which is mapped for reading. Returns a slot, to be given back by unguard_memory()
// before the memory is unmapped. ResourceExhausted if very many files are mapped already. Thread-safe.
StatusOr<size_t> guard_memory(const void* memory, size_t bytes);
void unguard_memory(size_t slot);

// Whether something was missing in the memory of this slot.
bool memory_was_lost(size_t slot);

}  // namespace shoal
