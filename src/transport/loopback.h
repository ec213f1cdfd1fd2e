// Transport within one process: an endpoint's handler runs on the sender's thread, so it must only enqueue.
#pragma once

#include <memory>
#include <mutex>
#include <unordered_map>

#include "transport/transport.h"

namespace shoal {

class LoopbackNetwork : public Network {
 public:
  LoopbackNetwork();
  ~LoopbackNetwork() override;

  std::unique_ptr<Transport> connect(NodeId self, Transport::OnMessage on_message) override;

 private:
  struct Shared;
  std::shared_ptr<Shared> shared_;
};

}  // namespace shoal
