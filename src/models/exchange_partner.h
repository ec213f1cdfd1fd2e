// Who computes what passes ask for, while other passes go on.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>

#include "base/expert_counts.h"
#include "base/status.h"
#include "base/time.h"
#include "models/pass.h"

namespace shoal {

class ExchangePartner {
 public:
  virtual ~ExchangePartner() = default;
  // A step of so many rows of so many sequences begins: into how many lanes it is cut, at most `lanes_max` and `sequences`.
  virtual uint32_t begin(uint32_t rows, uint32_t sequences, uint32_t lanes_max) { return std::min(sequences, lanes_max); }
  // All its lanes are over. `alone`: nothing else was computed between them, so that its time says what they take.
  virtual void end(bool alone) {}
  // Returns at once. One exchange of a lane at a time.
  virtual void ask(uint32_t lane, const Exchange& exchange) = 0;
  // The lane of an exchange that is answered, or nothing yet. Never waits. Unavailable, naming who is away, if one of those asked
  // cannot be: then no output is written any more, and all are forgotten.
  virtual StatusOr<std::optional<uint32_t>> answered() = 0;
  // Its thread is about to sleep until the bell rings that its partners have in common: for so long at most; 0: it is to look again at
  // once. Then woken() is called, whether it slept or not.
  virtual Duration doze() { return Duration(0); }
  virtual void woken() {}
  // Since it began: what was asked.
  virtual ExpertCounts counts() const { return {}; }
};

}  // namespace shoal
