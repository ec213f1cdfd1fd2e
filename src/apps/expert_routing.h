// Who computes the experts of this process's models, where that is somebody else (--experts): a client (experts/client.h) for each node and
// model, and what operators do with the servers: list, add, drain, move, replicate.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/json.h"
#include "base/status.h"
#include "experts/client.h"
#include "host/node_plan.h"

namespace shoal {

class ExpertRouting {
 public:
  struct Options {
    std::string client = "serve";
    size_t nodes = 1;
    uint32_t lanes = 1;
    std::shared_ptr<BulkTlsContext> tls;
  };
  explicit ExpertRouting(Options options) : options_(std::move(options)) {}

  // A model of every node, if it has experts; errors as of its files. Any thread, as the others.
  Status add(const ServedModel& model);
  // Null: it has none.
  ExchangePartner* partner(size_t node, ModelId model) const;
  void set_servers(std::vector<ExpertAddress> servers);
  std::vector<ExpertAddress> addresses() const;
  // For experts of all models; OK where nobody has any.
  Status wait_complete(Duration most) const;
  std::vector<RemoteExpertServer> seen() const;
  RemoteExpertsCounts counts() const;
  const std::shared_ptr<BulkTlsContext>& tls() const { return options_.tls; }

 private:
  using Key = std::pair<size_t, ModelId>;
  const Options options_;
  mutable std::mutex mutex_;
  std::vector<ExpertAddress> servers_;
  std::map<Key, std::unique_ptr<RemoteExperts>> clients_;
};

// "unix:PATH,HOST:PORT": the servers that --experts names. InvalidArgument for what is no address.
StatusOr<std::vector<ExpertAddress>> expert_addresses(const std::string& flag);
// N of "auto:N"; 0: it is not that.
StatusOr<uint32_t> expert_processes(const std::string& flag);
// What an expert server and its clients call the same files by: a sketch of them, and what is done with them at load.
StatusOr<uint64_t> expert_stamp(const Checkpoint& checkpoint, const LoadOptions& load);

// GET /experts: servers, what each holds and does, and how this process sees them.
Json list_experts(const ExpertRouting& routing);
// POST /experts/VERB: {"address"} of add; {"server"} of drain; {"model", "experts", "from", "to"} of move, without "from" of replicate.
// Copies come before drops, and what nobody else holds is dropped nowhere. Takes as long as the copies.
StatusOr<Json> change_experts(ExpertRouting& routing, const std::string& verb, const Json& request);

}  // namespace shoal
