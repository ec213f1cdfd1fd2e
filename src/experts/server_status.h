// What an expert server says of itself: all that it is, holds and does.
#pragma once

#include "base/json.h"
#include "experts/orders.h"
#include "experts/serving.h"

namespace shoal {

struct ExpertServerParts {
  const ExpertServerConfig& config;
  const Holdings& holdings;
  const Serving& serving;
  const ExpertOrders& orders;
};
// `with_rows`: also the rows of every expert since it began.
Json expert_server_status(const ExpertServerParts& of, bool with_rows);

}  // namespace shoal
