#include "transport/loopback.h"

#include <utility>

#include "base/check.h"

namespace shoal {

struct LoopbackNetwork::Shared {
  // Held by shared pointer, so that an endpoint may go while another one sends to it.
  struct Endpoint {
    std::mutex mutex;  // held while the handler runs; disconnecting waits for it
    Transport::OnMessage on_message;
  };

  std::mutex mutex;
  std::unordered_map<NodeId, std::shared_ptr<Endpoint>> endpoints;

  std::shared_ptr<Endpoint> find(NodeId id) {
    std::lock_guard lock(mutex);
    const auto found = endpoints.find(id);
    return found == endpoints.end() ? nullptr : found->second;
  }

  class Link;
};

class LoopbackNetwork::Shared::Link : public Transport {
 public:
  Link(std::shared_ptr<Shared> network, NodeId self) : network_(std::move(network)), self_(self) {}

  ~Link() override {
    const std::shared_ptr<Endpoint> endpoint = network_->find(self_);
    {
      std::lock_guard lock(network_->mutex);
      network_->endpoints.erase(self_);
    }
    std::lock_guard lock(endpoint->mutex);
    endpoint->on_message = nullptr;
  }

  Status send(NodeId to, std::string bytes) override {
    const std::shared_ptr<Endpoint> peer = network_->find(to);
    if (peer == nullptr) return unavailable("peer ", to.value, " is not connected");
    std::lock_guard lock(peer->mutex);
    if (!peer->on_message) return unavailable("peer ", to.value, " has just disconnected");
    return peer->on_message(self_, std::move(bytes)) ? OkStatus() : resource_exhausted("peer ", to.value, " has no room for more messages; what it was asked is lost");
  }

 private:
  const std::shared_ptr<Shared> network_;
  const NodeId self_;
};

LoopbackNetwork::LoopbackNetwork() : shared_(std::make_shared<Shared>()) {}
LoopbackNetwork::~LoopbackNetwork() = default;

std::unique_ptr<Transport> LoopbackNetwork::connect(NodeId self, Transport::OnMessage on_message) {
  auto endpoint = std::make_shared<Shared::Endpoint>();
  endpoint->on_message = std::move(on_message);
  {
    std::lock_guard lock(shared_->mutex);
    CHECK(shared_->endpoints.emplace(self, std::move(endpoint)).second);
  }
  return std::make_unique<Shared::Link>(shared_, self);
}

}  // namespace shoal
