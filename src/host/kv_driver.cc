#include "host/kv_driver.h"

#include <semaphore>
#include <utility>

#include "base/bytes.h"
#include "base/check.h"
#include "base/log.h"

namespace shoal {
namespace {

constexpr uint64_t kPieceBytes = kMiB;  // of blocks side by side: small copies cost more than their bytes, and more urgent ones wait for one

}  // namespace

KvDriver::KvDriver(NodeId self, Device& device, std::unique_ptr<PagedMemory> host_tier, std::shared_ptr<KvPeers> peers, OnCopied on_copied)
    : self_(self), device_(device), kv_(device_), host_tier_(std::move(host_tier)), host_kv_(*host_tier_), peers_(std::move(peers)), attachment_(*peers_, self, host_kv_),
      on_copied_(std::move(on_copied)) {}

KvDriver::~KvDriver() { end_fetches(); }

void KvDriver::link(KvListeners listeners, std::shared_ptr<const MemoryFile> memory, const std::shared_ptr<BulkNetwork>& network) {
  auto server = KvServer::make(std::move(listeners), {std::move(memory), [this](uint64_t block_bytes, std::span<const BlockId> blocks) { return peers_->read(self_).runs(block_bytes, blocks); }});
  if (!server.ok()) return log_error("no other process gets KV from this one, nor this one from them: ", server.status().message());
  server_ = *std::move(server);
  fetcher_ = KvFetcher::make(self_, network);
}

void KvDriver::set_addresses(std::map<NodeId, BulkAddress> addresses) {
  if (fetcher_ != nullptr) fetcher_->set_addresses(std::move(addresses));
}

void KvDriver::set_grants(std::vector<KvGrant> grants) {
  if (server_ != nullptr) server_->set_grants(std::move(grants));
}

void KvDriver::lost(NodeId peer) {
  if (fetcher_ != nullptr) fetcher_->abort(peer);
}

void KvDriver::end_fetches() {
  fetcher_.reset();
  server_.reset();
}

// Into blocks of the device, on a thread of the fetcher, which waits for it.
void KvDriver::bring(std::span<const KvFetch::Piece> pieces, std::span<const DeviceAddress> to) {
  std::binary_semaphore done(0);
  CopyJob job{CopyLane::kKvIn, {}, [&] { done.release(); }};
  for (const KvFetch::Piece& piece : pieces) {
    const CopyJob::Piece next{to[piece.block] + piece.offset, host_address(piece.bytes.data()), piece.bytes.size()};
    CopyJob::Piece* const last = job.pieces.empty() ? nullptr : &job.pieces.back();
    const bool follows = last != nullptr && last->to + last->bytes == next.to && last->from + last->bytes == next.from && last->bytes + next.bytes <= kPieceBytes;
    if (follows) last->bytes += next.bytes;
    else job.pieces.push_back(next);
  }
  device_.copy(std::move(job));
  done.acquire();
}

void KvDriver::fetch(const CopyKv& effect) {
  const KvMove& move = effect.move;
  KvFetch fetch{.from = effect.from, .request = move.request, .block_bytes = move.block_bytes};
  std::vector<DeviceAddress> to;
  for (const KvCopy& copy : move.copies) {
    fetch.blocks.push_back(copy.from);
    to.push_back(kv_.block(move.block_bytes, copy.to));
  }
  fetch.sink = [this, to = std::move(to)](std::span<const KvFetch::Piece> pieces) { bring(pieces, to); };
  fetch.done = [this, model = effect.model, id = move.id](const Status& status) { on_copied_(model, id, status.ok()); };
  fetcher_->fetch(std::move(fetch));
}

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
    if (!*peer) return fetcher_ == nullptr ? tell(false) : fetch(effect);
  }
  CopyJob job{out ? CopyLane::kKvOut : CopyLane::kKvIn, {}, [tell, peer] { tell(true); }};
  for (const KvCopy& copy : move.copies) {
    const DeviceAddress from = peer ? peer->block(move.block_bytes, copy.from) : (out ? kv_ : host_kv_).block(move.block_bytes, copy.from);
    job.pieces.push_back({(out ? host_kv_ : kv_).block(move.block_bytes, copy.to), from, move.block_bytes});
  }
  device_.copy(std::move(job));
}

std::vector<DeviceAddress> KvDriver::blocks_of(const StepInput& input, uint64_t block_bytes) const {
  std::vector<DeviceAddress> blocks;
  for (const StepSlice& slice : input.slices) {
    for (const auto* ids : {&slice.blocks, &slice.tail_from, &slice.state_before, &slice.state_after, &slice.state_kept}) {
      for (const BlockId block : *ids) blocks.push_back(kv_.block(block_bytes, block));
    }
  }
  return blocks;
}

}  // namespace shoal
