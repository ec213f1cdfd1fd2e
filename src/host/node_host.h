// A node for real: performs the effects of roles/node.h on one device, with its own loop thread, one compute thread
// (that drives the device's pool) and one loader thread.
#pragma once

#include <memory>

#include "base/status.h"
#include "host/kv_peers.h"
#include "host/node_plan.h"
#include "transport/loopback.h"

namespace shoal {

class NodeHost {
 public:
  // Reserves the device memory and starts the threads; no model is loaded yet. The network outlives the node. Nodes of
  // one process hand KV over if they have the same `peers`.
  static StatusOr<std::unique_ptr<NodeHost>> start(NodePlan plan, LoopbackNetwork& network,
                                                   std::shared_ptr<KvPeers> peers = std::make_shared<KvPeers>());
  virtual ~NodeHost() = default;  // stops the threads; work in flight is abandoned

  // Who is in the cluster, for what is fetched from nodes that are gone. Any thread.
  virtual void set_cluster(ClusterState state) = 0;
  // One more model, or an error with the reason; its id was never used here. Any thread, as the next.
  virtual StatusOr<NodeModel> add_model(ServedModel model) = 0;
  // No new requests for it; gone when those it has are ended.
  virtual void retire_model(ModelId model) = 0;

  // Seconds since the last step ended while work is queued; 0 when idle. Health means progress.
  virtual double stalled_seconds() const = 0;
};

}  // namespace shoal
