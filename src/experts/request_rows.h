// What of an exchange goes to one server: rows as a slot has them, each token once.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "experts/link.h"
#include "models/pass.h"
#include "policy/expert_calls.h"
#include "slots/message.h"

namespace shoal {

struct RequestRows {
  std::vector<uint32_t> tokens;   // rows of the exchange, each once
  std::vector<SlotRoute> routes;  // of the rows that were asked for, in their order
  uint32_t answers = 0;           // rows that come back
  uint32_t experts = 0;           // distinct ones
};
// One row of the exchange's routes for one expert.
struct RoutedRow {
  uint32_t routed = 0;  // index in ExpertRoutes::routed
  uint32_t expert = 0;
  bool joined = false;  // summed with the one before
};
// Of the call's rows, `part` go to one server. Those of a token and group of experts that has no other rows in the call come together, by
// ascending expert, all but the first `joined`: their sum is what is needed. Sorts `part` so; false: there are none.
bool join_groups(std::span<const ExpertRow> call, uint32_t experts, std::vector<uint32_t>& part, std::vector<bool>& joined);
RequestRows request_rows(const Exchange& exchange, std::span<const RoutedRow> rows);
// What came back: `routed` of the exchange, as they were asked for.
void take_rows(const Exchange& exchange, std::span<const uint32_t> routed, const std::vector<bool>& joined, std::span<const float> outputs);
// The rows of an answer, [answers, width], to a request that asks for sums: `outputs` [rows, width] by its routes; each sum is of their order,
// by FMA from 0 with the routes' weights, or 1 of a model that weighs the input.
std::vector<float> summed_rows(const RequestView& view, bool weigh_input, std::span<const float> outputs);
// Writes them to the link's slot of this lane and publishes them: what was sent. REQUIRES: the slot is idle, and takes so many rows.
RequestRows send_rows(ExpertLink& link, uint32_t lane, const Exchange& exchange, std::span<const RoutedRow> rows, TimePoint now);

}  // namespace shoal
