// Blocking streams between two processes for bytes in bulk: KV, and halves of expert slots. Control goes over transport_grpc; this is for
// what must move as fast as the wire. Which wire is an implementation's business: bulk_tcp.h, transport_ucx.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "base/status.h"
#include "base/time.h"

namespace shoal {

// Where a process has what others get in bulk.
struct BulkAddress {
  std::string address;  // HOST:PORT, with the scheme of its network before it
  std::string local;    // of a process of this machine: its UNIX socket (transport/local_socket.h); else empty
  friend bool operator==(const BulkAddress&, const BulkAddress&) = default;
};

// One thread at a time reads and writes; another may shut it down.
class BulkSocket {
 public:
  virtual ~BulkSocket() = default;
  // All of it, or Unavailable: the peer is gone, it was shut down, or nothing moved for the time-out.
  virtual Status write(std::span<const std::byte> bytes) = 0;
  virtual Status read(std::span<std::byte> bytes) = 0;
  virtual void shut_down() = 0;  // any thread: what reads or writes ends
  virtual std::string_view kind() const = 0;  // "TCP": for people
};

constexpr Duration kBulkTimeout = std::chrono::seconds(10);  // without a byte

class BulkListener {
 public:
  virtual ~BulkListener() = default;
  virtual uint16_t port() const = 0;
  // Waits for the next one; null after shut_down(). Handshakes are the caller's, at the first read or write.
  virtual std::unique_ptr<BulkSocket> accept() = 0;
  virtual void shut_down() = 0;
};

// Before HOST:PORT of who is reached over UCX.
constexpr std::string_view kUcxScheme = "ucx:";

// Any thread.
class BulkNetwork {
 public:
  virtual ~BulkNetwork() = default;
  virtual StatusOr<std::unique_ptr<BulkSocket>> connect(const std::string& address) = 0;  // Unavailable with the address
  // "HOST:PORT", port 0: any. Others connect to scheme() and the host and port.
  virtual StatusOr<std::unique_ptr<BulkListener>> listen(const std::string& address) = 0;
  virtual std::string_view scheme() const = 0;
};

}  // namespace shoal
