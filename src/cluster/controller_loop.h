// The thread that owns a Controller: what nodes report comes in through a bounded queue, what it decides goes out to them.
#pragma once

#include <memory>
#include <thread>

#include "base/queue.h"
#include "roles/controller.h"
#include "transport/peer_budget.h"
#include "transport/transport.h"
#include "wire/model_names.h"

namespace shoal {

class ControllerLoop {
 public:
  // The network outlives it. `names`: those of this process; a controller that has no files knows models by name alone.
  ControllerLoop(const ControllerConfig& config, Network& network, std::shared_ptr<ModelNames> names);
  ~ControllerLoop();

  // Any thread.
  void set_cluster(ClusterState state) { queue_.push(Event(ClusterChanged{std::move(state)})); }
  void peer_link(NodeId peer, bool up) { queue_.push(up ? Event(PeerConnected{peer}) : Event(PeerLost{peer})); }
  void lead(bool leads) { queue_.push(Event(LeadershipChanged{leads})); }

 private:
  struct Incoming {
    NodeId from;
    std::string bytes;
  };
  using Command = std::variant<Incoming, Event>;
  bool receive(NodeId from, std::string bytes);
  void run();
  void handle(const Event& event);

  const std::shared_ptr<ModelNames> names_;
  BoundedQueue<Command> queue_;
  PeerBudget peers_;
  Controller controller_;
  const NodeId self_;
  uint32_t life_ = 0;
  std::unique_ptr<Transport> transport_;
  std::thread thread_;
};

}  // namespace shoal
