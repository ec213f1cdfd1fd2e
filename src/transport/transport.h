// Moves messages between roles. Small: if an implementation needs supports_x(), this is wrong.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "base/ids.h"
#include "base/status.h"

namespace shoal {

// One endpoint. Messages between two endpoints arrive in order and unchanged, or not at all.
class Transport {
 public:
  // False: the endpoint has no room for it (transport/peer_budget.h), and the message is lost.
  using OnMessage = std::function<bool(NodeId from, std::string bytes)>;

  virtual ~Transport() = default;

  // Hands the bytes over without waiting. Unavailable if the peer is unknown or gone; ResourceExhausted if it has no room for
  // more, and then the link is lost: both sides go on as if the other had ended. OK is not a delivery receipt.
  virtual Status send(NodeId to, std::string bytes) = 0;
};

// Where endpoints are made.
class Network {
 public:
  virtual ~Network() = default;
  // The endpoint of `self`; `on_message` is called for each message until the endpoint is destroyed.
  // REQUIRES: no other live endpoint of that id. The network outlives its endpoints.
  virtual std::unique_ptr<Transport> connect(NodeId self, Transport::OnMessage on_message) = 0;
};

}  // namespace shoal
