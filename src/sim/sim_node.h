// A node in its simulated body: the production Node, a device by cost model, its bus, and the lives it has had.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "roles/node.h"
#include "sim/checkers.h"
#include "sim/device.h"
#include "sim/shared_link.h"
#include "sim/world_state.h"

namespace shoal {

class SimNode {
 public:
  using SendMessage = std::function<void(NodeId from, NodeId to, Message)>;
  // The device that a node reads from, and a number that changes when the connection to it does; null if there is none.
  struct Connection {
    const SimDevice* device = nullptr;
    uint64_t number = 0;
    TimePoint passable{};  // nothing arrives before
  };
  using Connect = std::function<Connection(NodeId from, NodeId to)>;
  SimNode(WorldState& world, uint32_t index, Checkers& checkers, SendMessage send, Connect connect);

  void start();  // a new, empty life
  void stop();   // everything in it is lost
  bool alive() const { return node_ != nullptr; }
  uint32_t life() const { return life_; }
  const SimDevice* device() const { return device_.get(); }

  void handle(const Event& event);  // at once, or when it runs again
  void pause(TimePoint until);
  // Loads and copies that begin from now on take so many times longer, or fail.
  void slow_disk(double factor) { disk_factor_ = factor; }
  void fail_loads(double probability) { load_failure_ = probability; }
  // Steps that begin from now on are deferred: they have written to their blocks, and nothing of it counts.
  void defer_steps(double probability) { deferral_ = probability; }

  const Node& node() const { return *node_; }  // REQUIRES: alive
  // Whether it held the model's weights at any time since then.
  bool held_since(ModelId model, TimePoint then) const;
  bool computing() const { return computing_; }
  bool loading() const { return load_.has_value(); }
  void settle();  // what is known at the end: counters of the last life

 private:
  void perform(Effect effect);
  void start_step(StartStep effect);
  void load(const LoadWeights& effect);
  void cancel_load(ModelId model);
  void move_weights();
  void end_load(const Status& status);
  void copy(const CopyKv& effect);
  void end_copy(const CopyKv& effect, const Connection& source);
  void wake_at(TimePoint when);
  // Runs `act` after `delay`, unless this life ended meanwhile.
  void in_this_life(Duration delay, EventHeap::Act act, bool work = true);
  void span(TimelineSpan::Kind kind, ModelId model, double from);
  NodeOutcome& seen() { return world_.outcome.nodes[index_]; }

  WorldState& world_;
  const uint32_t index_;
  const NodeSpec& spec_;
  Checkers& checkers_;
  const SendMessage send_;
  const Connect connect_;
  SharedLink bus_;
  std::unique_ptr<Node> node_;  // null while there is none
  std::unique_ptr<SimDevice> device_;
  uint32_t life_ = 0;
  TimePoint wake_ = kForever;
  TimePoint copies_end_{};      // of those asked for so far
  TimePoint paused_until_{};
  std::vector<EventHeap::Act> held_;  // while it is paused
  struct Held {
    bool now = false;
    TimePoint left{};
  };
  std::map<ModelId, Held> weights_;
  bool computing_ = false;
  struct Load {
    uint64_t number = 0;
    ModelId model;
    TimePoint since{};
    uint32_t pages = 0;
    std::vector<PageSpan> whole;  // of them
    bool fails = false;
    double bytes = 0;           // to move
    std::optional<TimePoint> moves_since;
    std::optional<uint64_t> transfer;  // on the bus
    void fill(double share);
  };
  std::optional<Load> load_;    // under way
  uint64_t loads_ = 0;          // numbers given
  double visible_from_ = 0;     // loading and not computing since
  double disk_factor_ = 1, load_failure_ = 0, deferral_ = 0;
};

}  // namespace shoal
