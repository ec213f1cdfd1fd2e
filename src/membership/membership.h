// The shared picture of the cluster: leases, watches and conditional writes. One implementation in memory here, one on
// etcd as an optional sibling library.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/status.h"
#include "membership/cluster_state.h"

namespace shoal {

class Membership {
 public:
  using OnChange = std::function<void(const ClusterState&)>;

  virtual ~Membership() = default;

  // Joins, or replaces an older life of the same member. The epoch given back is higher than that of every life before.
  virtual StatusOr<uint32_t> join(Member member) = 0;
  virtual Status drain(NodeId id, uint32_t epoch) = 0;
  // From now on this life of the member serves these models.
  virtual Status serve(NodeId id, uint32_t epoch, std::vector<ModelId> models) = 0;
  virtual Status leave(NodeId id, uint32_t epoch) = 0;

  // Calls back with the present state now and with each later one, in order, on any thread; it must only enqueue.
  virtual void watch(OnChange on_change) = 0;
};

// The membership of one process. Thread-safe.
class InMemoryMembership : public Membership {
 public:
  StatusOr<uint32_t> join(Member member) override;
  Status drain(NodeId id, uint32_t epoch) override;
  Status serve(NodeId id, uint32_t epoch, std::vector<ModelId> models) override;
  Status leave(NodeId id, uint32_t epoch) override;
  void watch(OnChange on_change) override;

 private:
  void apply(const MemberEvent& event);  // REQUIRES: mutex_ held

  std::mutex mutex_;
  ClusterState state_;
  std::map<NodeId, uint32_t> last_epoch_;
  std::vector<OnChange> watchers_;
};

}  // namespace shoal
