// KV of requests that go on at a node of another process: the node that has it serves the blocks that it granted (wire/message.h,
// KvTicket), the other one fetches them. Between processes of one machine the fetcher reads the other's memory itself, in one copy
// (process_vm_readv); else, or where the system forbids that, the bytes come over TCP.
//
//   fetcher -> server   reader, request, bytes per block, block ids
//   server -> fetcher   the bytes, block by block, each with whether the grant still held when it was copied; or
//                       where the blocks are in its memory; the fetcher reads, asks again, and hears whether the grant held all along
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/status.h"
#include "device/device_span.h"
#include "transport/bulk_socket.h"

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
  std::shared_ptr<BulkTlsContext> tls;  // null: in clear
};

class KvServer {
 public:
  // Where a granted block is, as long as its grant holds.
  using Find = std::function<DeviceAddress(uint64_t block_bytes, BlockId block)>;

  static std::unique_ptr<KvServer> make(std::unique_ptr<BulkListener> listener, Find find);
  virtual ~KvServer() = default;
  virtual uint16_t port() const = 0;
  // Those that hold from now on. What is not among them is not read any more when this returns: call it before its memory is reused.
  virtual void set_grants(std::vector<KvGrant> grants) = 0;
};

struct KvFetch {
  NodeId from;
  RequestId request;
  uint64_t block_bytes = 0;
  std::vector<BlockId> blocks;
  // Each block as it comes, in order; its bytes are valid during the call.
  std::function<void(size_t index, std::span<const std::byte> bytes)> sink;
  std::function<void(Status)> done;  // once, on a thread of the fetcher
};

class KvFetcher {
 public:
  static std::unique_ptr<KvFetcher> make(NodeId self, std::shared_ptr<BulkTlsContext> tls);
  virtual ~KvFetcher() = default;  // what is under way fails
  virtual void set_addresses(std::map<NodeId, BulkAddress> addresses) = 0;
  virtual void fetch(KvFetch fetch) = 0;
  virtual void abort(NodeId from) = 0;  // it was lost: what comes from there fails
};

}  // namespace shoal
