#include "host/kv_peers.h"

#include "base/check.h"

namespace shoal {

KvPeers::Attachment::Attachment(KvPeers& peers, NodeId node, KvStore& tier) : peers_(peers), node_(node), peer_(std::make_shared<Peer>()) {
  peer_->tier = &tier;
  std::lock_guard lock(peers_.mutex_);
  CHECK(peers_.peers_.emplace(node, peer_).second);
}

KvPeers::Attachment::~Attachment() {
  {
    std::lock_guard lock(peers_.mutex_);
    peers_.peers_.erase(node_);
  }
  std::unique_lock lock(peer_->mutex);
  peer_->unread.wait(lock, [&] { return peer_->readers == 0; });
  peer_->tier = nullptr;
}

Status KvPeers::Attachment::apply(std::span<const SlabChange> changes) {
  std::lock_guard lock(peer_->mutex);
  return peer_->tier->apply(changes);
}

KvPeers::Reading KvPeers::read(NodeId node) const {
  std::shared_ptr<Peer> peer;
  {
    std::lock_guard lock(mutex_);
    if (const auto found = peers_.find(node); found != peers_.end()) peer = found->second;
  }
  if (peer == nullptr) return {};
  std::lock_guard lock(peer->mutex);
  if (peer->tier == nullptr) return {};
  ++peer->readers;
  return Reading(peer);
}

KvPeers::Reading::~Reading() {
  if (peer_ == nullptr) return;
  std::lock_guard lock(peer_->mutex);
  if (--peer_->readers == 0) peer_->unread.notify_all();
}

DeviceAddress KvPeers::Reading::block(uint64_t block_bytes, BlockId id) const {
  std::lock_guard lock(peer_->mutex);
  return peer_->tier->block(block_bytes, id);
}

std::vector<ByteRun> KvPeers::Reading::runs(uint64_t block_bytes, std::span<const BlockId> blocks) const {
  std::lock_guard lock(peer_->mutex);
  return peer_->tier->runs(block_bytes, blocks);
}

}  // namespace shoal
