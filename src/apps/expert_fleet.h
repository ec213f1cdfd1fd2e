// What operators do with expert servers: list, add, drain, move, replicate, balance. Servers are asked and told directly.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/status.h"
#include "base/time.h"
#include "experts/client.h"

namespace shoal {

// What somebody else says of himself now and then. Any thread.
class LastWord {
 public:
  void say(Json what, TimePoint now);
  Json heard(TimePoint now) const;  // null: not for a while

 private:
  mutable std::mutex mutex_;
  std::shared_ptr<const Json> what_;
  TimePoint at_{};
};

// The expert servers that a process knows, and what it knows of them.
struct ExpertFleet {
  std::function<std::vector<ExpertAddress>()> servers;
  std::function<void(std::vector<ExpertAddress>)> set_servers;  // null: they come and go by themselves, in a cluster
  std::shared_ptr<BulkNetwork> network = make_bulk_tcp();
  // Of a process that asks them for rows; null: it does not.
  std::function<std::vector<RemoteExpertServer>()> seen;
  std::function<RemoteExpertsCounts()> counts;
  std::function<Json()> keeper;                                 // null: it is none
  std::shared_ptr<LastWord> scaling = std::make_shared<LastWord>();  // of whoever starts and ends servers by load
};

// GET /experts: servers, what each holds and does, and how this process sees them.
Json list_experts(const ExpertFleet& fleet);
// POST /experts/VERB: {"address"} of add; {"server"} of drain; {"model", "experts", "from", "to"} of move, without "from" of replicate; balance
// takes nothing, and "scaling" is what whoever starts and ends servers (apps/expert_scaling.h) has to say, for GET. Copies come before drops, and what nobody else holds is dropped nowhere. Takes as long as the copies.
StatusOr<Json> change_experts(const ExpertFleet& fleet, const std::string& verb, const Json& request);

}  // namespace shoal
