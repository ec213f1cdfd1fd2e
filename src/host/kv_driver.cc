#include "host/kv_driver.h"

#include <utility>

#include "base/check.h"
#include "base/log.h"

namespace shoal {

KvDriver::KvDriver(NodeId self, Device& device, std::unique_ptr<PagedMemory> host_tier, std::shared_ptr<KvPeers> peers, OnCopied on_copied)
    : device_(device), kv_(device_), host_tier_(std::move(host_tier)), host_kv_(*host_tier_), peers_(std::move(peers)), attachment_(*peers_, self, host_kv_),
      on_copied_(std::move(on_copied)) {}

void KvDriver::remap(const RemapSlabs& effect) {
  const Status mapped = effect.tier == Tier::kHost ? attachment_.apply(effect.changes) : kv_.apply(effect.changes);
  if (!mapped.ok()) log_error("KV memory: ", mapped.message());
  CHECK(mapped.ok());  // out of mappings: nothing this process does next would be right
}

void KvDriver::copy(const CopyKv& effect) {
  const KvMove& move = effect.move;
  const bool out = move.to == Tier::kHost;
  const auto tell = [this, model = effect.model, id = move.id](bool ok) { on_copied_(model, id, ok); };
  std::shared_ptr<KvPeers::Reading> peer;
  if (move.remote) {
    peer = std::make_shared<KvPeers::Reading>(peers_->read(effect.from));
    if (!*peer) return tell(false);
  }
  CopyJob job{out ? CopyLane::kKvOut : CopyLane::kKvIn, move.block_bytes, {}, [tell, peer] { tell(true); }};
  for (const KvCopy& copy : move.copies) {
    const DeviceAddress from = peer ? peer->block(move.block_bytes, copy.from) : (out ? kv_ : host_kv_).block(move.block_bytes, copy.from);
    job.pieces.push_back({(out ? host_kv_ : kv_).block(move.block_bytes, copy.to), from});
  }
  device_.copy(std::move(job));
}

std::vector<DeviceAddress> KvDriver::blocks_of(const StepInput& input, uint64_t block_bytes) const {
  std::vector<DeviceAddress> blocks;
  for (const StepSlice& slice : input.slices) {
    for (const BlockId block : slice.blocks) blocks.push_back(kv_.block(block_bytes, block));
  }
  return blocks;
}

}  // namespace shoal
