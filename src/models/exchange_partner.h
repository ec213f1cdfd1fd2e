// Who computes what passes ask for, while other passes go on.
#pragma once

#include <cstdint>

#include "base/status.h"
#include "models/pass.h"

namespace shoal {

class ExchangePartner {
 public:
  virtual ~ExchangePartner() = default;
  // Returns at once. One exchange of a lane at a time.
  virtual void ask(uint32_t lane, const Exchange& exchange) = 0;
  // Waits until an exchange is answered: its lane. Unavailable, naming who is away, if one of those asked cannot be: then no
  // output is written any more, and all are forgotten.
  virtual StatusOr<uint32_t> await() = 0;
};

}  // namespace shoal
