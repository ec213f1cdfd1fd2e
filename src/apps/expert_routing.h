// Who computes the experts of this process's models, where that is somebody else (--experts): a client (experts/client.h) for each node and
// model, and a keeper (experts/keeper.h) of the servers, where no controller of a cluster is that.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "apps/expert_fleet.h"
#include "base/ids.h"
#include "base/json.h"
#include "base/status.h"
#include "experts/client.h"
#include "experts/keeper.h"
#include "host/node_plan.h"

namespace shoal {

class ExpertRouting {
 public:
  struct Options {
    std::string client = "serve";
    size_t nodes = 1;
    uint32_t lanes = 1;
    bool choose_lanes = false;  // that many at most, by measured times
    std::shared_ptr<BulkNetwork> network = make_bulk_tcp();
    bool keeps = true;  // decides what the servers hold
  };
  static StatusOr<std::unique_ptr<ExpertRouting>> start(Options options);

  // A model of every node, if it has experts; errors as of its files. Any thread, as the others.
  Status add(const ServedModel& model);
  // Null: it has none.
  ExchangePartner* partner(size_t node, ModelId model) const;
  const std::shared_ptr<Bell>& bell(size_t node) const { return bells_[node]; }  // that a node's partners ring
  void set_servers(std::vector<ExpertAddress> servers);
  std::vector<ExpertAddress> addresses() const;
  // For experts of all models; OK where nobody has any.
  Status wait_complete(Duration most) const;
  std::vector<RemoteExpertServer> seen() const;
  RemoteExpertsCounts counts() const;
  ExpertFleet fleet();  // it outlives what it gives

 private:
  using Key = std::pair<size_t, ModelId>;
  ExpertRouting(Options options, std::vector<std::shared_ptr<Bell>> bells);

  const Options options_;
  const std::vector<std::shared_ptr<Bell>> bells_;  // by node
  mutable std::mutex mutex_;
  std::vector<ExpertAddress> servers_;
  std::map<Key, std::unique_ptr<RemoteExperts>> clients_;
  std::unique_ptr<ExpertKeeper> keeper_;  // ends before the rest
};

// "unix:PATH,HOST:PORT": the servers that --experts names. InvalidArgument for what is no address.
StatusOr<std::vector<ExpertAddress>> expert_addresses(const std::string& flag);
// How many expert servers of this machine --experts asks for.
struct ExpertProcesses {
  uint32_t min = 0, max = 0;  // 0 and 0: none
};
// Of "auto:N" and "auto:MIN-MAX".
StatusOr<ExpertProcesses> expert_processes(const std::string& flag);
// What an expert server and its clients call the same files by: a sketch of them, and what is done with them at load.
StatusOr<uint64_t> expert_stamp(const Checkpoint& checkpoint, const LoadOptions& load);

}  // namespace shoal
