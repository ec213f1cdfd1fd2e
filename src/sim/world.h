// The virtual body: production Router, Nodes and Engines over an event heap, one thread, one seed. Same setup, same trace
// hash. In a strict setup every event ends with check() of every role, so a broken invariant names the first event that
// broke it.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "roles/controller.h"
#include "roles/router.h"
#include "sim/checkers.h"
#include "sim/clients.h"
#include "sim/network.h"
#include "sim/outcome.h"
#include "sim/setup.h"
#include "sim/sim_node.h"
#include "sim/world_state.h"

namespace shoal {

class World {
 public:
  // REQUIRES: at least one node; every node knows the same models, with ids 0, 1, ...
  explicit World(WorldSetup setup);
  ~World();

  // Told about each request when it ended, and now and then about how far it is: false ends the run there.
  void on_end(Clients::OnEnd on_end) { on_request_end_ = std::move(on_end); }
  void on_progress(std::function<bool(const Outcome&, double virtual_seconds)> progress) { on_progress_ = std::move(progress); }

  // To the end: every request ended, every device idle; or to where it was given up or interrupted. Once.
  Outcome run();

 private:
  struct Link {  // of the router to a node
    uint32_t connection = 0;    // raised when it breaks: what was under way in it is lost
    uint32_t member_epoch = 0;
    bool member = false;
    bool breaking = false;
  };

  void next_arrival();
  void arrive(Arrival arrival);
  // A router, in its lives.
  struct Gateway {
    std::unique_ptr<Router> router;  // null while there is none
    uint32_t life = 0;
    TimePoint wake = kForever;
  };
  using Stream = std::pair<uint32_t, uint32_t>;  // node, gateway

  void to_gateway(uint32_t gateway, const Event& event);
  void perform_router(uint32_t gateway, Effect effect);
  void to_controller(const Event& event);
  uint32_t gateway_of(RequestId id) const { return setup_.gateways == 1 ? 0 : id.gateway.value - kRouterId.value; }
  void start_gateway(uint32_t gateway);
  void stop_gateway(uint32_t gateway);
  void lose_stream(const Fault& fault);
  void deliver(NodeId from, NodeId to, uint32_t node, const std::shared_ptr<const Event>& event);
  bool passes(NodeId from, NodeId to, uint32_t node) const;
  void send(NodeId from, NodeId to, Message message);
  bool survives_codec(Message& message);
  void lose_connection(uint32_t node);

  void start_node(uint32_t node);
  void stop_node(uint32_t node);
  void join(uint32_t node);
  Member member(uint32_t node) const;
  void leave(uint32_t node);
  void publish(const MemberEvent& event);
  SimNode::Connection connection(uint32_t from, uint32_t to) const;

  void begin_fault(const Fault& fault);
  void end_fault(const Fault& fault);
  void cut_off(const Fault& fault);
  void notice(const Fault& fault);

  void begin_change(const AdminChange& change);
  void add_model(ModelId model);
  void retire_model(ModelId model);
  void announce();
  void await_load(ModelId model, TimePoint asked);
  void check_admin(uint32_t node);  // I9

  void step();
  void sample();
  void check_all();
  void check_end();

  const WorldSetup setup_;
  WorldState state_;
  Network network_;
  Checkers checkers_;
  Clients clients_;
  std::vector<Gateway> gateways_;
  std::unique_ptr<Controller> controller_;  // of a world with several gateways
  std::vector<std::unique_ptr<SimNode>> nodes_;
  std::vector<Link> links_;
  ClusterState cluster_;
  std::map<ModelId, Configure> acknowledged_;  // settings
  std::map<Stream, uint32_t> streams_;       // how often it broke
  std::map<Stream, TimePoint> broken_until_;
  bool workload_done_ = false;
  TimePoint last_arrival_{};
  double next_sample_ = 0;
  Clients::OnEnd on_request_end_;
  std::function<bool(const Outcome&, double)> on_progress_;
};

}  // namespace shoal
