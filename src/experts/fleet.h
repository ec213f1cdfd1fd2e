// Expert servers as one sees them from outside: each asked for what it is, holds and does, and told what to hold.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/status.h"
#include "experts/client.h"
#include "experts/expert_set.h"
#include "nlohmann/json.hpp"
#include "policy/expert_placement.h"

namespace shoal {

// A model of a server, as its status says.
struct ReportedModel {
  std::string name, stamp;
  ExpertShape shape;
  ExpertSet holds, pinned;             // pinned: an operator put them there
  std::vector<uint64_t> expert_bytes;  // [layers]
  std::vector<uint64_t> rows;          // by index, since the server began; empty: not asked for
};

struct ServerReport {
  ExpertAddress address;
  std::string name, domain;
  int64_t pid = 0;
  bool draining = false;
  uint64_t memory_bytes = 0, used_bytes = 0;
  std::vector<ExpertSample> times;     // of batches
  std::vector<ReportedModel> models;
  Json status;                         // all that it said

  uint64_t free_bytes() const { return memory_bytes - std::min(memory_bytes, used_bytes); }
  const ReportedModel* find(const std::string& stamp) const;
};

// InvalidArgument or DataLoss for what no server of this version says.
StatusOr<ServerReport> read_report(const ExpertAddress& address, Json status);
// A request (experts/server.h) to whichever of its addresses answers.
StatusOr<Json> ask_expert_server(const ExpertAddress& address, const std::shared_ptr<BulkNetwork>& network, const Json& request, Duration patience);
StatusOr<ServerReport> ask_report(const ExpertAddress& address, const std::shared_ptr<BulkNetwork>& network, const Json& request = {{"verb", "status"}}, Duration patience = std::chrono::seconds(2));
// Of each address, in their order; each has `patience` to answer.
std::vector<StatusOr<ServerReport>> ask_reports(const std::vector<ExpertAddress>& addresses, const std::shared_ptr<BulkNetwork>& network, const Json& request = {{"verb", "status"}},
                                                Duration patience = std::chrono::seconds(2));
// `verb` is "hold" or "drop"; as long as reading the experts takes. `pinned`: an operator says so.
Status tell_experts(const ServerReport& server, const std::shared_ptr<BulkNetwork>& network, const char* verb, const ReportedModel& model, const ExpertSet& set, bool pinned = false,
                    Duration patience = std::chrono::minutes(10));

}  // namespace shoal
