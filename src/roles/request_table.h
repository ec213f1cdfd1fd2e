// The requests that a node has accepted: whose they are, which of them have not begun, and how each of them ends.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <unordered_map>
#include <utility>
#include <vector>

#include "policy/prefill_groups.h"
#include "roles/catalogue.h"
#include "roles/effect.h"
#include "roles/handovers.h"

namespace shoal {

struct AcceptedRequest {
  NodeId gateway;
  uint32_t epoch = 0;
  ModelId model;
  uint64_t order = 0;          // of submission to this node
  bool stays = false;          // came back: nobody else would take it
  bool prompt_queued = false;  // in the queue of prompts: no step yet
  TimePoint begin_by = kForever;  // no step yet, and it ends if there is none by then
  ModelDigest weights;         // that computed its KV or output so far; none yet
};

// Tells a gateway that a request was not accepted, or ends with an error. `retry_after`: 0 is not said.
void refuse(NodeId to, const Request& request, const Status& why, std::vector<Effect>& effects, Duration retry_after = Duration(0));

class RequestTable {
 public:
  // Both outlive the table.
  RequestTable(Catalogue& catalogue, Handovers& handovers, const PrefillOptions& prompts)
      : catalogue_(catalogue), handovers_(handovers), prompts_(prompts) {}

  // The engine of its model has it.
  AcceptedRequest& add(RequestId id, const AcceptedRequest& request);
  AcceptedRequest* find(RequestId id);  // null if the node does not own it; valid until it ends
  bool has(RequestId id) const { return requests_.contains(id); }
  bool empty() const { return requests_.empty(); }
  std::vector<RequestId> of_model(ModelId model) const;  // in order of their ids
  std::vector<RequestId> of_gateway(NodeId gateway) const;
  std::optional<uint64_t> order_of(RequestId id) const;

  // ---- before the first step --------------------------------------------------------------------------------------------

  void begin_by(RequestId id, TimePoint bound);
  void queue_prompt(const PrefillJob& job, const SwitchSeconds& switch_seconds, TimePoint now);
  void begun(RequestId id, AcceptedRequest& request);  // its first step, or its end
  std::optional<RequestId> overdue(TimePoint now) const;
  TimePoint next_bound() const { return bounds_.empty() ? kForever : bounds_.begin()->first; }
  const PrefillQueue& prompts() const { return prompts_; }
  uint32_t prompts_queued(ModelId model) const;

  // ---- the end ----------------------------------------------------------------------------------------------------------

  // All of these REQUIRE that the node owns it.
  void erase(RequestId id);                                   // it ended, or went elsewhere
  void withdraw(RequestId id, std::vector<Effect>& effects);  // nobody waits for it any more
  void fail(RequestId id, const Status& why, std::vector<Effect>& effects, Duration retry_after = Duration(0));
  // Only its own requests, and with the reason. REQUIRES: none is in a step.
  void fail_all_of(ModelId model, const Status& why, std::vector<Effect>& effects);
  // To be called when a request may have stopped needing what it fetches: its KV is here, or it ended.
  void settle_fetch(RequestId id, std::vector<Effect>& effects);

  void check() const;

 private:
  Catalogue& catalogue_;
  Handovers& handovers_;
  std::unordered_map<RequestId, AcceptedRequest> requests_;
  PrefillQueue prompts_;
  std::map<ModelId, uint32_t> prompts_queued_;
  std::set<std::pair<TimePoint, RequestId>> bounds_;  // AcceptedRequest::begin_by
  uint64_t next_order_ = 1;
};

}  // namespace shoal
