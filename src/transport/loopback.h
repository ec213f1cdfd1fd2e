// Transport within one process: an endpoint's handler runs on the sender's thread, so it must only enqueue.
#pragma once

#include <memory>
#include <mutex>
#include <unordered_map>

#include "transport/transport.h"

namespace shoal {

class LoopbackNetwork {
 public:
  LoopbackNetwork();
  ~LoopbackNetwork();

  // The endpoint of `self`; `on_message` is called for each message until the endpoint is destroyed.
  // REQUIRES: no other live endpoint of that id. The network outlives its endpoints.
  std::unique_ptr<Transport> connect(NodeId self, Transport::OnMessage on_message);

 private:
  struct Shared;
  std::shared_ptr<Shared> shared_;
};

}  // namespace shoal
