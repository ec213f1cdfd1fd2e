// What the fuzzer of recorded runs and the tests over its seeds run.
#pragma once

#include <string_view>

#include "replay/record_reader.h"
#include "replay/replay.h"

namespace shoal::fuzz {

// A recorded run from arbitrary bytes: the same decisions, other ones or an error, never anything else. True if the nodes decide as
// it says.
inline bool events(std::string_view file) {
  RecordReader reader;
  Replay replay;
  reader.add(file);
  while (true) {
    const auto record = reader.next();
    if (!record.ok()) return false;
    if (!*record) return replay.counts().events > 0;
    if (!replay.record(**record).ok()) return false;
  }
}

}  // namespace shoal::fuzz
