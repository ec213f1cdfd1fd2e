// Rows of one exchange in one request, to one server.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "experts/client.h"
#include "experts/request_rows.h"
#include "policy/expert_calls.h"

namespace shoal {

struct ExpertPart {
  std::shared_ptr<ExpertLink> link;
  std::vector<ExpertAsk> asks;   // whose rows they are, as the call has them
  std::vector<uint32_t> rows;    // of the call: of all asks
  std::vector<bool> joined;      // of each row: it comes as a part of the row before it; empty: none does
  bool relayed = false;          // the server gives them to others of its machine
  uint32_t twin = 0;             // of two with the same rows, of which one answer counts; 0: it has none
  double work = 0;               // of the link, while it is sent
  bool sent = false;
  TimePoint sent_at{}, late_at{};
  TimePoint hedge_at = kForever;  // another server is asked as well

  // REQUIRES: the link's slot of this lane is idle. `routed`: `rows`, as the exchange has them.
  RequestRows send(uint32_t lane, const Exchange& exchange, std::span<const RoutedRow> routed, const RemoteExpertsConfig& config, TimePoint now);
  // Its answer is not waited for any more: the slot is used again once it came.
  void disown(uint32_t lane);
  // Whether something lies where its answer comes.
  bool came(uint32_t lane) const;
};

}  // namespace shoal
