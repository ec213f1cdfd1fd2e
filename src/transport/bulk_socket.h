// A blocking stream between two processes for bytes in bulk (KV), in clear or with mutual TLS. Control goes over transport_grpc; this
// is for what must move as fast as the wire.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "base/status.h"
#include "base/time.h"
#include "base/tls_identity.h"

namespace shoal {

// Where a process has what others get in bulk.
struct BulkAddress {
  std::string address;  // HOST:PORT
  std::string local;    // of a process of this machine: its UNIX socket (transport/local_socket.h); else empty
  friend bool operator==(const BulkAddress&, const BulkAddress&) = default;
};

// Certificates read once, for any number of streams.
class BulkTlsContext;
StatusOr<std::shared_ptr<BulkTlsContext>> make_bulk_tls(const TlsIdentity& tls);

// One thread at a time reads and writes; another may shut it down.
class BulkSocket {
 public:
  virtual ~BulkSocket() = default;
  // All of it, or Unavailable: the peer is gone, it was shut down, or nothing moved for the time-out.
  virtual Status write(std::span<const std::byte> bytes) = 0;
  virtual Status read(std::span<std::byte> bytes) = 0;
  virtual void shut_down() = 0;  // any thread: what reads or writes ends
};

constexpr Duration kBulkTimeout = std::chrono::seconds(10);  // without a byte

// `tls`: null for none. Unavailable with the address.
StatusOr<std::unique_ptr<BulkSocket>> bulk_connect(const std::string& address, const std::shared_ptr<BulkTlsContext>& tls);

class BulkListener {
 public:
  // "HOST:PORT", port 0: any.
  static StatusOr<std::unique_ptr<BulkListener>> start(const std::string& address, std::shared_ptr<BulkTlsContext> tls);
  virtual ~BulkListener() = default;
  virtual uint16_t port() const = 0;
  // Waits for the next one; null after shut_down(). Handshakes are the caller's, at the first read or write.
  virtual std::unique_ptr<BulkSocket> accept() = 0;
  virtual void shut_down() = 0;
};

}  // namespace shoal
