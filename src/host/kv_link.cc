#include "host/kv_link.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <list>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "base/bytes.h"
#include "base/log.h"
#include "base/queue.h"

namespace shoal {
namespace {

constexpr uint32_t kMagic = 0x324b5653;  // "SVK2"
constexpr uint32_t kBlocksMax = 1 << 20;
constexpr uint64_t kBlockBytesMax = 1ull << 30;
constexpr size_t kStreamsMax = 256;
constexpr size_t kFetchThreads = 2;
constexpr size_t kFetchesMax = 65'536;
constexpr uint64_t kChunkBytes = 2 * kMiB;  // of blocks that come over TCP, to be handed on at once: the sink may wake a thread for it
enum Answer : uint32_t { kGone = 0, kHolds = 1 };

struct Head {
  uint32_t magic = kMagic;
  uint32_t reader = 0;
  uint32_t gateway = 0, life = 0;
  uint64_t sequence = 0;
  uint64_t block_bytes = 0;
  uint32_t blocks = 0;
  uint32_t unused = 0;
};
static_assert(sizeof(Head) == 40 && sizeof(ByteRun) == 16);

template <typename T>
std::span<const std::byte> bytes_of(const T& value) { return std::as_bytes(std::span(&value, 1)); }
// Runs that follow one another in memory are one, up to a chunk: a small block is not worth a call of the system.
std::vector<ByteRun> joined(std::span<const ByteRun> runs) {
  std::vector<ByteRun> result;
  for (const ByteRun& run : runs) {
    const bool follows = !result.empty() && result.back().offset + result.back().bytes == run.offset && result.back().bytes + run.bytes <= kChunkBytes;
    if (follows) result.back().bytes += run.bytes;
    else result.push_back(run);
  }
  return result;
}

template <typename T>
std::span<std::byte> writable(T& value) { return std::as_writable_bytes(std::span(&value, 1)); }

// ---- who has it --------------------------------------------------------------------------------------------------------------

class Server : public KvServer {
 public:
  Server(KvListeners listeners, KvSource source, std::shared_ptr<const MemoryView> view)
      : listeners_(std::move(listeners)), source_(std::move(source)), view_(std::move(view)) {
    accepting_.emplace_back([this] { accept(*listeners_.tcp, [this](BulkSocket& socket) { return stream(socket); }); });
    if (listeners_.local == nullptr) return;
    accepting_.emplace_back([this] { accept(*listeners_.local, [this](LocalSocket& socket) { return share(socket); }); });
  }
  ~Server() override {
    listeners_.tcp->shut_down();
    if (listeners_.local != nullptr) listeners_.local->shut_down();
    for (std::thread& thread : accepting_) thread.join();
    std::list<Stream> streams;
    {
      std::lock_guard lock(streams_mutex_);
      for (Stream& stream : streams_) stream.socket->shut_down();
      streams.swap(streams_);
    }
    for (Stream& stream : streams) stream.thread.join();
  }
  uint16_t port() const override { return listeners_.tcp->port(); }
  void set_grants(std::vector<KvGrant> grants) override {
    std::lock_guard lock(mutex_);
    std::vector<Held> held;
    for (KvGrant& grant : grants) {
      const auto same = std::find_if(grants_.begin(), grants_.end(), [&](const Held& h) { return h.grant == grant; });
      held.push_back({std::move(grant), same == grants_.end() ? ++last_number_ : same->number});
    }
    grants_ = std::move(held);
  }

 private:
  struct Stream {
    std::unique_ptr<BulkSocket> socket;
    std::thread thread;
    std::atomic<bool> over{false};
  };
  // One that ended and was given again has another number: its memory may have been another's meanwhile.
  struct Held {
    KvGrant grant;
    uint64_t number;
  };
  // Blocks that somebody may read while grant `number` holds.
  struct Reading {
    uint64_t number = 0;
    std::vector<ByteRun> runs;  // of each block in turn
  };

  template <typename Listener, typename Serve>
  void accept(Listener& listener, const Serve& serve) {
    while (auto socket = listener.accept()) {
      std::lock_guard lock(streams_mutex_);
      for (auto it = streams_.begin(); it != streams_.end();) {
        if (!it->over) {
          ++it;
          continue;
        }
        it->thread.join();
        it = streams_.erase(it);
      }
      if (streams_.size() >= kStreamsMax) continue;  // closed; who asks computes anew
      Stream& stream = streams_.emplace_back();
      auto& opened = *socket;
      stream.socket = std::move(socket);
      stream.thread = std::thread([serve, &stream, &opened] {
        serve(opened).IgnoreError();  // the reader has gone, or says so itself
        opened.shut_down();
        stream.over = true;
      });
    }
  }

  // The bytes of blocks, again and again.
  Status stream(BulkSocket& socket) const {
    while (true) {
      ASSIGN_OR_RETURN(const std::optional<Reading> reading, asked(socket));
      if (!reading) continue;
      for (const ByteRun& run : joined(reading->runs)) {
        if (!holds(reading->number)) return not_found("the grant ended");
        RETURN_IF_ERROR(socket.write(view_->bytes().subspan(run.offset, run.bytes)));
      }
      RETURN_IF_ERROR(conclude(socket, *reading));
    }
  }

  // The memory, then where blocks are.
  Status share(LocalSocket& socket) const {
    socket.set_timeout(Duration(0), kBulkTimeout);
    RETURN_IF_ERROR(socket.send_descriptors(std::array{source_.memory->fd()}));
    while (true) {
      ASSIGN_OR_RETURN(const std::optional<Reading> reading, asked(socket));
      if (!reading) continue;
      const auto count = static_cast<uint32_t>(reading->runs.size());
      RETURN_IF_ERROR(socket.write(bytes_of(count)));
      RETURN_IF_ERROR(socket.write(std::as_bytes(std::span(reading->runs))));
      RETURN_IF_ERROR(conclude(socket, *reading));
    }
  }

  // What a reader wants next, answered with whether it may have it; none if not.
  StatusOr<std::optional<Reading>> asked(BulkSocket& socket) const {
    Head head;
    RETURN_IF_ERROR(socket.read(writable(head)));
    if (head.magic != kMagic || head.blocks == 0 || head.blocks > kBlocksMax || head.block_bytes == 0 || head.block_bytes > kBlockBytesMax) {
      return invalid_argument("not a request for KV");
    }
    std::vector<BlockId> blocks(head.blocks);
    RETURN_IF_ERROR(socket.read(std::as_writable_bytes(std::span(blocks))));
    std::optional<Reading> reading = granted(head, blocks);
    const uint32_t answer = reading ? kHolds : kGone;
    RETURN_IF_ERROR(socket.write(bytes_of(answer)));
    return reading;
  }

  std::optional<Reading> granted(const Head& head, std::span<const BlockId> blocks) const {
    const RequestId request(NodeId(head.gateway), head.life, head.sequence);
    std::lock_guard lock(mutex_);
    const auto held = std::find_if(grants_.begin(), grants_.end(), [&](const Held& h) {
      return h.grant.reader.value == head.reader && h.grant.block_bytes == head.block_bytes && h.grant.request == request;
    });
    if (held == grants_.end()) return std::nullopt;
    std::vector<BlockId> known = held->grant.blocks;
    std::sort(known.begin(), known.end());
    if (!std::all_of(blocks.begin(), blocks.end(), [&](BlockId block) { return std::binary_search(known.begin(), known.end(), block); })) return std::nullopt;
    return Reading{held->number, source_.find(head.block_bytes, blocks)};
  }
  bool holds(uint64_t number) const {
    std::lock_guard lock(mutex_);
    return std::any_of(grants_.begin(), grants_.end(), [&](const Held& h) { return h.number == number; });
  }
  Status conclude(BulkSocket& socket, const Reading& reading) const {
    uint32_t read = 0;
    RETURN_IF_ERROR(socket.read(writable(read)));
    const uint32_t answer = holds(reading.number) ? kHolds : kGone;
    return socket.write(bytes_of(answer));
  }

  const KvListeners listeners_;
  const KvSource source_;
  const std::shared_ptr<const MemoryView> view_;
  mutable std::mutex mutex_;
  std::vector<Held> grants_;
  uint64_t last_number_ = 0;
  std::mutex streams_mutex_;
  std::list<Stream> streams_;
  std::vector<std::thread> accepting_;
};

// ---- who wants it ------------------------------------------------------------------------------------------------------------

class Fetcher : public KvFetcher {
 public:
  Fetcher(NodeId self, std::shared_ptr<BulkNetwork> network) : self_(self), network_(std::move(network)) {
    for (size_t i = 0; i < kFetchThreads; ++i) threads_.emplace_back([this] { run(); });
  }
  ~Fetcher() override {
    queue_.close();
    {
      std::lock_guard lock(mutex_);
      ending_ = true;
      for (Connection& connection : connections_) {
        if (connection.socket != nullptr) connection.socket->shut_down();
      }
    }
    for (std::thread& thread : threads_) thread.join();
  }

  void set_addresses(std::map<NodeId, BulkAddress> addresses) override {
    std::lock_guard lock(mutex_);
    addresses_ = std::move(addresses);
    std::erase_if(connections_, [&](const Connection& c) {
      const auto known = addresses_.find(c.node);
      return !c.used && (known == addresses_.end() || !(known->second == c.address));
    });
  }
  void fetch(KvFetch fetch) override { queue_.push(std::move(fetch)); }
  void abort(NodeId from) override {
    std::lock_guard lock(mutex_);
    ++aborts_[from];
    for (Connection& connection : connections_) {
      if (connection.node == from && connection.socket != nullptr) connection.socket->shut_down();
    }
    std::erase_if(connections_, [&](const Connection& c) { return c.node == from && !c.used; });
  }

 private:
  struct Connection {
    NodeId node;
    BulkAddress address;
    bool used = false;
    std::unique_ptr<BulkSocket> socket;      // null: it is being opened
    std::shared_ptr<const MemoryView> view;  // the other's memory; null: its bytes come over the stream
  };

  void run() {
    std::vector<std::byte> chunk;
    while (!queue_.closed()) {
      auto fetch = queue_.pop(std::chrono::milliseconds(500));
      if (!fetch) continue;
      const uint64_t aborts = aborts_of(fetch->from);
      Status status = attempt(*fetch, chunk, aborts);
      // A connection that was idle may have been closed by the other side long ago.
      if (status.code() == StatusCode::kUnavailable && !ending_ && aborts == aborts_of(fetch->from)) status = attempt(*fetch, chunk, aborts);
      if (!status.ok()) log_info("KV of request ", fetch->request.text(), " is not to be had from ", fetch->from.value, " (", status.message(), "); it is computed anew");
      fetch->done(status);
    }
  }

  uint64_t aborts_of(NodeId node) {
    std::lock_guard lock(mutex_);
    return aborts_[node];
  }

  // `aborts`: how often it had been lost when the fetch began.
  StatusOr<Connection*> connection(NodeId node, uint64_t aborts) {
    Connection* opened = nullptr;
    {
      std::lock_guard lock(mutex_);
      const auto known = addresses_.find(node);
      if (known == addresses_.end()) return not_found("no address of its KV is known");
      for (Connection& c : connections_) {
        if (c.node != node || c.used || !(c.address == known->second)) continue;
        c.used = true;
        return &c;
      }
      opened = &connections_.emplace_back(Connection{.node = node, .address = known->second, .used = true});
    }
    const Status status = open(*opened, aborts);
    if (status.ok()) return opened;
    give_back(opened, false);
    return status;
  }
  Status open(Connection& c, uint64_t aborts) {
    const Status shared = c.address.local.empty() ? not_found("it is on another machine") : open_memory(c, aborts);
    if (shared.ok() || aborts != aborts_of(c.node)) return shared;
    ASSIGN_OR_RETURN(std::unique_ptr<BulkSocket> socket, network_->connect(c.address.address));
    if (!c.address.local.empty()) log_info("KV of ", c.node.value, " comes over TCP: ", shared.message());
    return set_socket(c, std::move(socket), aborts);
  }
  // The other process's memory, which a second connection to it shares.
  Status open_memory(Connection& c, uint64_t aborts) {
    ASSIGN_OR_RETURN(std::unique_ptr<LocalSocket> opened, unix_connect(c.address.local));
    LocalSocket& socket = *opened;
    socket.set_timeout(kBulkTimeout, kBulkTimeout);
    RETURN_IF_ERROR(set_socket(c, std::move(opened), aborts));
    ASSIGN_OR_RETURN(const std::vector<int> descriptors, socket.receive_descriptors(1));
    ASSIGN_OR_RETURN(std::shared_ptr<const MemoryFile> file, MemoryFile::of(descriptors[0]));
    std::lock_guard lock(mutex_);
    for (const Connection& other : connections_) {
      if (other.view != nullptr && other.view->file().same_as(*file)) c.view = other.view;
    }
    if (c.view != nullptr) return OkStatus();
    ASSIGN_OR_RETURN(c.view, MemoryView::map(std::move(file)));
    return OkStatus();
  }
  // From here on abort() and the end reach it.
  Status set_socket(Connection& c, std::unique_ptr<BulkSocket> socket, uint64_t aborts) {
    std::lock_guard lock(mutex_);
    if (ending_) return absl::CancelledError("the node is ending");
    if (aborts_[c.node] != aborts) return unavailable("it was lost");
    c.socket = std::move(socket);
    return OkStatus();
  }
  void give_back(Connection* connection, bool good) {
    std::lock_guard lock(mutex_);
    connection->used = false;
    if (!good) std::erase_if(connections_, [&](const Connection& c) { return &c == connection; });
  }

  Status attempt(const KvFetch& fetch, std::vector<std::byte>& chunk, uint64_t aborts) {
    ASSIGN_OR_RETURN(Connection* const c, connection(fetch.from, aborts));
    const Status status = read(*c, fetch, chunk);
    give_back(c, status.ok() || status.code() == StatusCode::kNotFound);
    return status;
  }

  Status read(const Connection& c, const KvFetch& fetch, std::vector<std::byte>& chunk) {
    RETURN_IF_ERROR(ask(*c.socket, fetch));
    uint32_t answer = kGone;
    RETURN_IF_ERROR(c.socket->read(writable(answer)));
    if (answer != kHolds) return not_found("it is not granted any more");
    RETURN_IF_ERROR(c.view != nullptr ? read_memory(*c.socket, c.view->bytes(), fetch) : read_stream(*c.socket, fetch, chunk));
    const uint32_t have_read = 1;
    RETURN_IF_ERROR(c.socket->write(bytes_of(have_read)));
    RETURN_IF_ERROR(c.socket->read(writable(answer)));
    return answer == kHolds ? OkStatus() : not_found("its grant ended while it was read");
  }

  Status ask(BulkSocket& socket, const KvFetch& fetch) const {
    Head head;
    head.reader = self_.value;
    head.gateway = fetch.request.gateway.value;
    head.life = fetch.request.life;
    head.sequence = fetch.request.sequence;
    head.block_bytes = fetch.block_bytes;
    head.blocks = static_cast<uint32_t>(fetch.blocks.size());
    RETURN_IF_ERROR(socket.write(bytes_of(head)));
    return socket.write(std::as_bytes(std::span(fetch.blocks)));
  }

  static Status read_stream(BulkSocket& socket, const KvFetch& fetch, std::vector<std::byte>& chunk) {
    const size_t at_once = std::max<uint64_t>(1, kChunkBytes / fetch.block_bytes);
    for (size_t first = 0; first < fetch.blocks.size(); first += at_once) {
      const size_t count = std::min(at_once, fetch.blocks.size() - first);
      chunk.resize(std::max<size_t>(chunk.size(), count * fetch.block_bytes));
      const std::span<std::byte> bytes(chunk.data(), count * fetch.block_bytes);
      RETURN_IF_ERROR(socket.read(bytes));
      std::vector<KvFetch::Piece> pieces;
      for (size_t i = 0; i < count; ++i) pieces.push_back({first + i, 0, bytes.subspan(i * fetch.block_bytes, fetch.block_bytes)});
      fetch.sink(pieces);
    }
    return OkStatus();
  }

  static Status read_memory(BulkSocket& socket, std::span<const std::byte> memory, const KvFetch& fetch) {
    uint32_t count = 0;
    RETURN_IF_ERROR(socket.read(writable(count)));
    const uint64_t most = fetch.blocks.size() * (2 + fetch.block_bytes / kPageBytes);
    if (count > most) return data_loss("the other process says that its KV lies in ", count, " places");
    std::vector<ByteRun> runs(count);
    RETURN_IF_ERROR(socket.read(std::as_writable_bytes(std::span(runs))));
    std::vector<KvFetch::Piece> pieces;
    uint64_t at = 0;  // in the blocks one after the other
    for (const ByteRun& run : runs) {
      const bool inside = run.bytes <= memory.size() && run.offset <= memory.size() - run.bytes;
      if (!inside || run.bytes == 0 || run.bytes > fetch.block_bytes - at % fetch.block_bytes) return data_loss("the other process says that its KV lies where its memory is not");
      pieces.push_back({at / fetch.block_bytes, at % fetch.block_bytes, memory.subspan(run.offset, run.bytes)});
      at += run.bytes;
    }
    if (at != fetch.blocks.size() * fetch.block_bytes) return data_loss("the other process has ", at, " bytes of KV");
    fetch.sink(pieces);
    return OkStatus();
  }

  const NodeId self_;
  const std::shared_ptr<BulkNetwork> network_;
  BoundedQueue<KvFetch> queue_{kFetchesMax};
  std::mutex mutex_;
  std::atomic<bool> ending_{false};
  std::map<NodeId, BulkAddress> addresses_;
  std::map<NodeId, uint64_t> aborts_;  // how often each was lost
  std::list<Connection> connections_;
  std::vector<std::thread> threads_;
};

}  // namespace

StatusOr<KvListeners> KvListeners::start(const KvLinkConfig& config) {
  KvListeners listeners;
  ASSIGN_OR_RETURN(listeners.tcp, config.network->listen(config.listen));
  if (config.local.empty()) return listeners;
  auto local = LocalListener::start(config.local);
  if (local.ok()) listeners.local = *std::move(local);
  else log_warning("nodes of this machine get KV over TCP: ", local.status().message());
  return listeners;
}

StatusOr<std::unique_ptr<KvServer>> KvServer::make(KvListeners listeners, KvSource source) {
  ASSIGN_OR_RETURN(std::shared_ptr<const MemoryView> view, MemoryView::map(source.memory));
  return std::make_unique<Server>(std::move(listeners), std::move(source), std::move(view));
}

std::unique_ptr<KvFetcher> KvFetcher::make(NodeId self, std::shared_ptr<BulkNetwork> network) { return std::make_unique<Fetcher>(self, std::move(network)); }

}  // namespace shoal
