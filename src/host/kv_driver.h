// A node's KV for real: the bytes behind block ids on both tiers, and their copies between these and from other nodes' host
// tiers, in this process or in another. Used by the node's loop thread.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "device/device.h"
#include "host/kv_link.h"
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

  ~KvDriver();

  // From now on nodes of other processes fetch what they were granted, and this one fetches from them. Before any other thread
  // uses this.
  // `memory`: of the host tier. Without memory to map it once more it stays alone, and says so.
  void link(KvListeners listeners, std::shared_ptr<const MemoryFile> memory, const std::shared_ptr<BulkNetwork>& network);
  uint16_t link_port() const { return server_ == nullptr ? 0 : server_->port(); }
  void set_addresses(std::map<NodeId, BulkAddress> addresses);
  // REQUIRES: before any effect that follows from the change is performed.
  void set_grants(std::vector<KvGrant> grants);
  void lost(NodeId peer);
  void end_fetches();  // waits until none is under way

  void remap(const RemapSlabs& effect);
  void give_back(std::span<const PageRun> pages) { host_tier_->give_back(page_ranges(pages)); }  // of the host tier
  void copy(const CopyKv& effect);
  std::vector<DeviceAddress> blocks_of(const StepInput& input, uint64_t block_bytes) const;

 private:
  void fetch(const CopyKv& effect);
  void bring(std::span<const KvFetch::Piece> pieces, std::span<const DeviceAddress> to);

  const NodeId self_;
  Device& device_;
  KvStore kv_;
  const std::unique_ptr<PagedMemory> host_tier_;
  KvStore host_kv_;
  const std::shared_ptr<KvPeers> peers_;
  KvPeers::Attachment attachment_;
  const OnCopied on_copied_;
  std::unique_ptr<KvServer> server_;
  std::unique_ptr<KvFetcher> fetcher_;
};

}  // namespace shoal
