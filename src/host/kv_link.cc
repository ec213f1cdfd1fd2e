#include "host/kv_link.h"

#include <sys/uio.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <list>
#include <mutex>
#include <set>
#include <thread>

#include "base/log.h"
#include "base/queue.h"

namespace shoal {
namespace {

constexpr uint32_t kMagic = 0x314b5653;  // "SVK1"
constexpr uint32_t kBlocksMax = 1 << 20;
constexpr uint64_t kBlockBytesMax = 1ull << 30;
constexpr size_t kStreamsMax = 256;
constexpr size_t kFetchThreads = 2;
constexpr size_t kFetchesMax = 65'536;
enum Mode : uint32_t { kStream = 0, kAddresses = 1 };
enum Answer : uint32_t { kGone = 0, kHolds = 1 };

struct Head {
  uint32_t magic = kMagic;
  uint32_t reader = 0;
  uint32_t gateway = 0, life = 0;
  uint64_t sequence = 0;
  uint64_t block_bytes = 0;
  uint32_t blocks = 0;
  uint32_t mode = kStream;
};
static_assert(sizeof(Head) == 40);

template <typename T>
std::span<const std::byte> bytes_of(const T& value) { return std::as_bytes(std::span(&value, 1)); }
template <typename T>
std::span<std::byte> writable(T& value) { return std::as_writable_bytes(std::span(&value, 1)); }

// ---- who has it --------------------------------------------------------------------------------------------------------------

class Server : public KvServer {
 public:
  Server(std::unique_ptr<BulkListener> listener, Find find) : listener_(std::move(listener)), find_(std::move(find)) {
    ::prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0);  // where Yama restricts it: readers are processes of this user
    accepting_ = std::thread([this] { accept(); });
  }
  ~Server() override {
    listener_->shut_down();
    accepting_.join();
    std::list<Stream> streams;
    {
      std::lock_guard lock(streams_mutex_);
      for (Stream& stream : streams_) stream.socket->shut_down();
      streams.swap(streams_);
    }
    for (Stream& stream : streams) stream.thread.join();
  }
  uint16_t port() const override { return listener_->port(); }
  void set_grants(std::vector<KvGrant> grants) override {
    std::lock_guard lock(mutex_);
    grants_ = std::move(grants);
  }

 private:
  struct Stream {
    std::unique_ptr<BulkSocket> socket;
    std::thread thread;
    std::atomic<bool> over{false};
  };

  void accept() {
    while (std::unique_ptr<BulkSocket> socket = listener_->accept()) {
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
      stream.socket = std::move(socket);
      stream.thread = std::thread([this, &stream] {
        while (serve(*stream.socket).ok()) {}
        stream.socket->shut_down();
        stream.over = true;
      });
    }
  }

  // REQUIRES: mutex_ held.
  bool granted(const Head& head, std::span<const BlockId> blocks) const {
    return std::any_of(grants_.begin(), grants_.end(), [&](const KvGrant& grant) {
      if (grant.reader.value != head.reader || grant.block_bytes != head.block_bytes) return false;
      if (grant.request != RequestId(NodeId(head.gateway), head.life, head.sequence)) return false;
      return std::all_of(blocks.begin(), blocks.end(), [&](BlockId id) { return std::find(grant.blocks.begin(), grant.blocks.end(), id) != grant.blocks.end(); });
    });
  }

  Status serve(BulkSocket& socket) {
    Head head;
    RETURN_IF_ERROR(socket.read(writable(head)));
    if (head.magic != kMagic || head.blocks == 0 || head.blocks > kBlocksMax || head.block_bytes == 0 || head.block_bytes > kBlockBytesMax || head.mode > kAddresses) {
      return invalid_argument("not a request for KV");
    }
    std::vector<BlockId> blocks(head.blocks);
    RETURN_IF_ERROR(socket.read(std::as_writable_bytes(std::span(blocks))));
    return head.mode == kStream ? stream(socket, head, blocks) : addresses(socket, head, blocks);
  }

  // A block is copied while nobody can take it away, and sent at leisure.
  Status stream(BulkSocket& socket, const Head& head, std::span<const BlockId> blocks) {
    std::vector<std::byte> block(sizeof(uint32_t) + head.block_bytes);
    for (const BlockId id : blocks) {
      uint32_t answer = kGone;
      {
        std::lock_guard lock(mutex_);
        if (granted(head, std::span(&id, 1))) {
          answer = kHolds;
          std::memcpy(block.data() + sizeof(answer), reinterpret_cast<const void*>(find_(head.block_bytes, id).address), head.block_bytes);
        }
      }
      std::memcpy(block.data(), &answer, sizeof(answer));
      RETURN_IF_ERROR(socket.write(block));
      if (answer == kGone) break;
    }
    return OkStatus();
  }

  Status addresses(BulkSocket& socket, const Head& head, std::span<const BlockId> blocks) {
    std::vector<uint64_t> words(1 + blocks.size(), 0);  // the process, then where its blocks are; zeros: they are not granted
    {
      std::lock_guard lock(mutex_);
      if (granted(head, blocks)) {
        words[0] = static_cast<uint64_t>(::getpid());
        for (size_t i = 0; i < blocks.size(); ++i) words[i + 1] = find_(head.block_bytes, blocks[i]).address;
      }
    }
    RETURN_IF_ERROR(socket.write(std::as_bytes(std::span(words))));
    if (words[0] == 0) return OkStatus();
    uint32_t read = 0;
    RETURN_IF_ERROR(socket.read(writable(read)));
    uint32_t answer = kGone;
    {
      std::lock_guard lock(mutex_);
      answer = granted(head, blocks) ? kHolds : kGone;
    }
    return socket.write(bytes_of(answer));
  }

  const std::unique_ptr<BulkListener> listener_;
  const Find find_;
  std::mutex mutex_;
  std::vector<KvGrant> grants_;
  std::mutex streams_mutex_;
  std::list<Stream> streams_;
  std::thread accepting_;
};

// ---- who wants it ------------------------------------------------------------------------------------------------------------

class Fetcher : public KvFetcher {
 public:
  Fetcher(NodeId self, std::shared_ptr<BulkTlsContext> tls) : self_(self), tls_(std::move(tls)) {
    for (size_t i = 0; i < kFetchThreads; ++i) threads_.emplace_back([this] { run(); });
  }
  ~Fetcher() override {
    queue_.close();
    {
      std::lock_guard lock(mutex_);
      ending_ = true;
      for (Connection& connection : connections_) connection.socket->shut_down();
    }
    for (std::thread& thread : threads_) thread.join();
  }

  void set_addresses(std::map<NodeId, BulkAddress> addresses) override {
    std::lock_guard lock(mutex_);
    addresses_ = std::move(addresses);
    std::erase_if(connections_, [&](const Connection& c) {
      const auto known = addresses_.find(c.node);
      return !c.used && (known == addresses_.end() || known->second.address != c.address.address);
    });
  }
  void fetch(KvFetch fetch) override { queue_.push(std::move(fetch)); }
  void abort(NodeId from) override {
    std::lock_guard lock(mutex_);
    for (Connection& connection : connections_) {
      if (connection.node == from) connection.socket->shut_down();
    }
    std::erase_if(connections_, [&](const Connection& c) { return c.node == from && !c.used; });
  }

 private:
  struct Connection {
    NodeId node;
    BulkAddress address;
    std::unique_ptr<BulkSocket> socket;
    bool used = false;
  };

  void run() {
    std::vector<std::byte> block;
    while (!queue_.closed()) {
      auto fetch = queue_.pop(std::chrono::milliseconds(500));
      if (!fetch) continue;
      Status status = attempt(*fetch, block);
      // A connection that was idle may have been closed by the other side long ago.
      if (status.code() == StatusCode::kUnavailable && !ending_) status = attempt(*fetch, block);
      if (!status.ok()) log_info("KV of request ", fetch->request.text(), " is not to be had from ", fetch->from.value, " (", status.message(), "); it is computed anew");
      fetch->done(status);
    }
  }

  StatusOr<Connection*> connection(NodeId node) {
    BulkAddress address;
    {
      std::lock_guard lock(mutex_);
      if (ending_) return absl::CancelledError("the node is ending");
      const auto known = addresses_.find(node);
      if (known == addresses_.end()) return not_found("no address of its KV is known");
      address = known->second;
      for (Connection& c : connections_) {
        if (c.node != node || c.used || !(c.address == address)) continue;
        c.used = true;
        return &c;
      }
    }
    ASSIGN_OR_RETURN(std::unique_ptr<BulkSocket> socket, bulk_connect(address.address, tls_));
    std::lock_guard lock(mutex_);
    if (ending_) return absl::CancelledError("the node is ending");
    connections_.push_back({node, address, std::move(socket), true});
    return &connections_.back();
  }
  void give_back(Connection* connection, bool good) {
    std::lock_guard lock(mutex_);
    connection->used = false;
    if (!good) std::erase_if(connections_, [&](const Connection& c) { return &c == connection; });
  }

  Status attempt(const KvFetch& fetch, std::vector<std::byte>& block) {
    ASSIGN_OR_RETURN(Connection* const c, connection(fetch.from));
    const bool by_memory = c->address.same_machine && !memory_refused_;
    const Status status = by_memory ? read_memory(*c->socket, fetch, block) : read_stream(*c->socket, fetch, block);
    give_back(c, status.ok());
    return status;
  }

  Status ask(BulkSocket& socket, const KvFetch& fetch, Mode mode) const {
    Head head;
    head.reader = self_.value;
    head.gateway = fetch.request.gateway.value;
    head.life = fetch.request.life;
    head.sequence = fetch.request.sequence;
    head.block_bytes = fetch.block_bytes;
    head.blocks = static_cast<uint32_t>(fetch.blocks.size());
    head.mode = mode;
    RETURN_IF_ERROR(socket.write(bytes_of(head)));
    return socket.write(std::as_bytes(std::span(fetch.blocks)));
  }

  Status read_stream(BulkSocket& socket, const KvFetch& fetch, std::vector<std::byte>& block) {
    RETURN_IF_ERROR(ask(socket, fetch, kStream));
    block.resize(fetch.block_bytes);
    for (size_t i = 0; i < fetch.blocks.size(); ++i) {
      uint32_t answer = kGone;
      RETURN_IF_ERROR(socket.read(writable(answer)));
      if (answer != kHolds) return not_found("it is not granted any more");
      RETURN_IF_ERROR(socket.read(block));
      fetch.sink(i, block);
    }
    return OkStatus();
  }

  Status read_memory(BulkSocket& socket, const KvFetch& fetch, std::vector<std::byte>& block) {
    RETURN_IF_ERROR(ask(socket, fetch, kAddresses));
    std::vector<uint64_t> words(1 + fetch.blocks.size());
    RETURN_IF_ERROR(socket.read(std::as_writable_bytes(std::span(words))));
    if (words[0] == 0) return not_found("it is not granted any more");
    block.resize(fetch.block_bytes);
    for (size_t i = 0; i < fetch.blocks.size(); ++i) {
      const iovec to{block.data(), block.size()}, from{reinterpret_cast<void*>(words[i + 1]), block.size()};
      const ssize_t n = ::process_vm_readv(static_cast<pid_t>(words[0]), &to, 1, &from, 1, 0);
      if (n != static_cast<ssize_t>(block.size())) {
        if (n < 0 && (errno == EPERM || errno == ENOSYS) && !memory_refused_.exchange(true)) {
          log_warning("the system does not let this process read another's memory (", std::strerror(errno), "); KV comes over TCP");
        }
        return unavailable("the other process's memory could not be read");
      }
      fetch.sink(i, block);
    }
    const uint32_t read = 1;
    RETURN_IF_ERROR(socket.write(bytes_of(read)));
    uint32_t answer = kGone;
    RETURN_IF_ERROR(socket.read(writable(answer)));
    return answer == kHolds ? OkStatus() : not_found("its grant ended while it was read");
  }

  const NodeId self_;
  const std::shared_ptr<BulkTlsContext> tls_;
  BoundedQueue<KvFetch> queue_{kFetchesMax};
  std::atomic<bool> memory_refused_{false};
  std::mutex mutex_;
  std::atomic<bool> ending_{false};
  std::map<NodeId, BulkAddress> addresses_;
  std::list<Connection> connections_;
  std::vector<std::thread> threads_;
};

}  // namespace

std::unique_ptr<KvServer> KvServer::make(std::unique_ptr<BulkListener> listener, Find find) {
  return std::make_unique<Server>(std::move(listener), std::move(find));
}

std::unique_ptr<KvFetcher> KvFetcher::make(NodeId self, std::shared_ptr<BulkTlsContext> tls) { return std::make_unique<Fetcher>(self, std::move(tls)); }

}  // namespace shoal
