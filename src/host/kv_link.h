// KV of requests that go on at a node of another process: the node that has it serves the blocks that it granted (wire/message.h,
// KvTicket), the other one fetches them. Its host tier is a file in memory (base/memory_file.h). A process of the same user and machine
// gets the file over a UNIX socket, maps it once for as long as both live, and copies out of it; others get the bytes over TCP.
//
//   server -> fetcher   once, over the UNIX socket: the file
//   fetcher -> server   reader, request, bytes per block, block ids
//   server -> fetcher   whether they are granted; if so, over TCP the bytes, over the UNIX socket where in the file they are
//   fetcher -> server   that it has read them
//   server -> fetcher   whether the grant held all along; the bytes are good only then
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/memory_file.h"
#include "base/status.h"
#include "runner/kv_store.h"
#include "transport/bulk_tcp.h"
#include "transport/local_socket.h"

namespace shoal {

// Blocks of a node's host tier that another one may read.
struct KvGrant {
  RequestId request;
  NodeId reader;
  uint64_t block_bytes = 0;
  std::vector<BlockId> blocks;
  friend bool operator==(const KvGrant&, const KvGrant&) = default;
};

// How nodes of other processes get at a node's KV.
struct KvLinkConfig {
  std::string listen = "127.0.0.1:0";
  std::string local;                    // UNIX socket for processes of this machine; empty: none
  std::shared_ptr<BulkNetwork> network = make_bulk_tcp();
};

struct KvListeners {
  // Without the UNIX socket, and said so, if that is not to be had. Unavailable if the address is not.
  static StatusOr<KvListeners> start(const KvLinkConfig& config);

  std::unique_ptr<BulkListener> tcp;
  std::unique_ptr<LocalListener> local;  // null: none
};

// The memory of a host tier, and where in it granted blocks are, as long as their grant holds: the runs of each in turn.
struct KvSource {
  std::shared_ptr<const MemoryFile> memory;
  std::function<std::vector<ByteRun>(uint64_t block_bytes, std::span<const BlockId> blocks)> find;
};

class KvServer {
 public:
  static StatusOr<std::unique_ptr<KvServer>> make(KvListeners listeners, KvSource source);  // ResourceExhausted
  virtual ~KvServer() = default;
  virtual uint16_t port() const = 0;
  // Those that hold from now on. Whoever has read what is not among them any more will hear so: call it before its memory is reused.
  virtual void set_grants(std::vector<KvGrant> grants) = 0;
};

struct KvFetch {
  // Bytes [offset, offset + bytes.size()) of blocks[block].
  struct Piece {
    size_t block = 0;
    uint64_t offset = 0;
    std::span<const std::byte> bytes;
  };
  NodeId from;
  RequestId request;
  uint64_t block_bytes = 0;
  std::vector<BlockId> blocks;
  // Many pieces at once, in order; valid during the call. Some may come twice, after a stream broke.
  std::function<void(std::span<const Piece> pieces)> sink;
  std::function<void(Status)> done;  // once, on a thread of the fetcher
};

class KvFetcher {
 public:
  static std::unique_ptr<KvFetcher> make(NodeId self, std::shared_ptr<BulkNetwork> network);
  virtual ~KvFetcher() = default;  // what is under way fails
  virtual void set_addresses(std::map<NodeId, BulkAddress> addresses) = 0;
  virtual void fetch(KvFetch fetch) = 0;
  virtual void abort(NodeId from) = 0;  // it was lost: what comes from there fails
};

}  // namespace shoal
