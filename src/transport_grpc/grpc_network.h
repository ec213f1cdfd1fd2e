// Messages between processes: one gRPC stream for each pair, both ways, kept up and watched by beats, with mutual TLS where
// certificates are given. A stream that breaks is two losses, one on each side; what was under way in it is gone, and it is dialled
// anew.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/status.h"
#include "base/tls_identity.h"
#include "base/time.h"
#include "transport/transport.h"

namespace shoal {

// Another process to be linked with.
struct PeerAddress {
  NodeId id;
  std::string name;
  std::string address;   // HOST:PORT
  std::string instance;  // of the process that has the name now; a stream to one of before ends
  friend bool operator==(const PeerAddress&, const PeerAddress&) = default;
};

struct GrpcNetworkConfig {
  std::string cluster = "default";
  std::string name;
  std::string instance;
  NodeId self;
  uint32_t protocol = 1;
  std::string listen = "127.0.0.1:0";
  TlsIdentity tls;
  std::function<NodeId(const std::string& name)> id_of;
  // A stream on which nothing came for so long is lost. Beats go out five times as often, less often with very many peers.
  Duration silence_max = std::chrono::milliseconds(1500);
  uint64_t waiting_bytes_max = 256ull << 20;  // to one peer that does not read: beyond them it is lost
};

// What a process answers beside messages; see peer.proto. Empty ones are refused. They may take their time.
struct PeerHandlers {
  std::function<std::string()> cards;
  std::function<StatusOr<std::string>(const std::string& verb)> operate;
  using Emit = std::function<bool(const std::string& file, const std::string& bytes)>;  // false: nobody reads any more
  std::function<Status(const std::string& model, uint64_t stamp, const Emit& emit)> text;
};

class GrpcNetwork : public Network {
 public:
  // On any thread; must only enqueue. There are no streams before connect(). Down comes after the last message of the stream, up before the first.
  using OnLink = std::function<void(NodeId peer, const std::string& name, bool up)>;

  // Listens. Unavailable if it cannot, with the address; InvalidArgument for certificates that are none.
  static StatusOr<std::unique_ptr<GrpcNetwork>> start(GrpcNetworkConfig config, OnLink on_link, PeerHandlers handlers = {});
  virtual uint16_t port() const = 0;
  // Whom to be linked with from now on.
  virtual void set_peers(std::vector<PeerAddress> peers) = 0;

  // As peer.proto. Unavailable or the other side's error.
  virtual StatusOr<std::string> cards(const PeerAddress& peer) = 0;
  virtual Status text(const PeerAddress& peer, const std::string& model, uint64_t stamp, const PeerHandlers::Emit& emit) = 0;
  virtual StatusOr<std::string> operate(const PeerAddress& peer, const std::string& verb) = 0;
};

}  // namespace shoal
