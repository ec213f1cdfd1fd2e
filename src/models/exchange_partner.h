// Who computes what passes ask for, while other passes go on.
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/expert_counts.h"
#include "base/status.h"
#include "models/pass.h"

namespace shoal {

class ExchangePartner {
 public:
  virtual ~ExchangePartner() = default;
  // A step of so many rows of so many sequences begins: into how many lanes it is cut, at most `lanes_max` and `sequences`.
  virtual uint32_t begin(uint32_t rows, uint32_t sequences, uint32_t lanes_max) { return std::min(sequences, lanes_max); }
  // All its lanes are over.
  virtual void end() {}
  // Returns at once. One exchange of a lane at a time.
  virtual void ask(uint32_t lane, const Exchange& exchange) = 0;
  // Waits until an exchange is answered: its lane. Unavailable, naming who is away, if one of those asked cannot be: then no
  // output is written any more, and all are forgotten.
  virtual StatusOr<uint32_t> await() = 0;
  // Since it began: what was asked, and waited for.
  virtual ExpertCounts counts() const { return {}; }
};

}  // namespace shoal
