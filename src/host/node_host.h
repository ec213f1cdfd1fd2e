// A node for real: performs the effects of roles/node.h on one device, with its own loop thread, one compute thread
// (that drives the device's pool) and one loader thread.
#pragma once

#include <map>
#include <memory>

#include "base/status.h"
#include "host/kv_peers.h"
#include "host/node_plan.h"
#include "transport/transport.h"

namespace shoal {

class NodeHost {
 public:
  // Reserves the device memory and starts the threads; no model is loaded yet. The network outlives the node. Nodes of
  // one process hand KV over if they have the same `peers`.
  static StatusOr<std::unique_ptr<NodeHost>> start(NodePlan plan, Network& network,
                                                   std::shared_ptr<KvPeers> peers = std::make_shared<KvPeers>());
  virtual ~NodeHost() = default;  // stops the threads; work in flight is abandoned

  // Who is in the cluster, for what is fetched from nodes that are gone. Any thread.
  virtual void set_cluster(ClusterState state) = 0;
  // The stream to another process came up, or broke. Any thread.
  virtual void peer_link(NodeId peer, bool up) = 0;
  // Where nodes of other processes have their KV. Any thread.
  virtual void set_kv_addresses(std::map<NodeId, BulkAddress> addresses) = 0;
  virtual uint16_t kv_port() const = 0;  // where they get this node's; 0: nowhere
  // A message that no gateway sent: settings, and what is to be resident, of this process. Any thread.
  virtual void tell(Message message) = 0;
  // Takes nothing new, ends what it has. Any thread.
  virtual void drain() = 0;
  virtual bool idle() const = 0;
  // One more model, or an error with the reason; its id was never used here. Any thread, as the next.
  virtual StatusOr<NodeModel> add_model(ServedModel model) = 0;
  // No new requests for it; gone when those it has are ended.
  virtual void retire_model(ModelId model) = 0;

  // Seconds since the last step ended while work is queued; 0 when idle. Health means progress.
  virtual double stalled_seconds() const = 0;
};

}  // namespace shoal
