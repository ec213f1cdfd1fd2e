// A node's KV for real: the bytes behind block ids on both tiers, and their copies between these and from other nodes' host
// tiers. Used by the node's loop thread.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "device/device.h"
#include "host/kv_peers.h"
#include "roles/effect.h"
#include "runner/kv_store.h"

namespace shoal {

class KvDriver {
 public:
  // Runs on a thread of the device, or at once.
  using OnCopied = std::function<void(ModelId model, uint64_t move, bool ok)>;

  // `device` outlives this.
  KvDriver(NodeId self, Device& device, std::unique_ptr<PagedMemory> host_tier, std::shared_ptr<KvPeers> peers, OnCopied on_copied);

  void remap(const RemapSlabs& effect);
  void copy(const CopyKv& effect);
  std::vector<DeviceAddress> blocks_of(const StepInput& input, uint64_t block_bytes) const;

 private:
  Device& device_;
  KvStore kv_;
  const std::unique_ptr<PagedMemory> host_tier_;
  KvStore host_kv_;
  const std::shared_ptr<KvPeers> peers_;
  KvPeers::Attachment attachment_;
  const OnCopied on_copied_;
};

}  // namespace shoal
