// What of an exchange goes to one server: rows as a slot has them, each token once.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "experts/link.h"
#include "models/pass.h"
#include "slots/message.h"

namespace shoal {

struct RequestRows {
  std::vector<uint32_t> tokens;   // rows of the exchange, each once
  std::vector<SlotRoute> routes;  // of the rows that were asked for, in their order
  uint32_t experts = 0;           // distinct ones
};
// One row of the exchange's routes for one expert.
struct RoutedRow {
  uint32_t routed = 0;  // index in ExpertRoutes::routed
  uint32_t expert = 0;
};
RequestRows request_rows(const Exchange& exchange, std::span<const RoutedRow> rows);
// Writes them to the link's slot of this lane and publishes them: what was sent. REQUIRES: the slot is idle, and takes so many rows.
RequestRows send_rows(ExpertLink& link, uint32_t lane, const Exchange& exchange, std::span<const RoutedRow> rows, TimePoint now);

}  // namespace shoal
