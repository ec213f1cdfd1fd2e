// Everything a simulation is made of, as values: devices, links, a workload, faults, and how closely to look.
#pragma once

#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "roles/node.h"
#include "roles/router.h"
#include "sim/costs.h"

namespace shoal {

constexpr NodeId kRouterId{1'000'000};      // of the first gateway's router; those of others follow
constexpr NodeId kControllerId{2'000'000};  // of a world with several gateways

inline bool is_router(NodeId id) { return id >= kRouterId && id < kControllerId; }

// One node: its configuration as in production, and what its device takes.
struct NodeSpec {
  NodeConfig config;                 // `self` is its place in WorldSetup::nodes, `gateways` the router
  std::string kind;                  // of its device, for reports
  std::vector<StepCost> steps;       // [model id]
  double load_seconds = 0;           // of every load, beside the bytes
  double load_bytes_per_second = 2e9;
  double copy_bytes_per_second = 10e9;  // KV between the tiers
  bool shared_link = false;          // loads and copies under way share one link of load_bytes_per_second
  double price_per_hour = 0;
  std::vector<ModelId> serves;       // what the membership says of it; empty: every model
  std::vector<uint64_t> load_bytes;  // [model id] of a load; empty: the weights
};

// Between the router and every node, in each direction.
struct LinkSpec {
  Duration latency = std::chrono::microseconds(20);
  Duration jitter = std::chrono::microseconds(200);  // uniform on top; the order stays
  double bytes_per_second = std::numeric_limits<double>::infinity();
};

struct Arrival {
  Request request;
  TimePoint at{};
  uint32_t answer_tokens = 0;      // that the client waits for; 0: request.max_tokens
  TimePoint deadline = kForever;   // for the whole answer
  TimePoint cancel_at = kForever;  // the client hangs up
};

// Requests by arrival. One at a time, so that a long run needs no memory for those to come.
class Workload {
 public:
  virtual ~Workload() = default;
  virtual std::optional<Arrival> next() = 0;
};

struct Fault {
  enum class Kind : uint8_t {
    kCrash,       // everything in it is lost; back, empty, when the fault ends
    kPause,       // as by SIGSTOP; beyond the lease it loses its membership and comes back with a new epoch
    kPartition,   // nothing passes in either direction; beyond the lease it is fenced and starts anew
    kLossTo,      // one way: nothing passes from the router to the node
    kLossFrom,    //          or from the node to the router
    kLoss,        // a message is lost with probability `amount`, and with it the connection
    kReorder,     // a message is delayed by up to 20 ms with probability `amount`, and others may overtake it
    kDuplicate,   // a message arrives twice with probability `amount`
    kDelay,       // every message takes `amount` seconds longer
    kSlowDisk,    // loads and copies begun meanwhile take `amount` times as long
    kLoadFailure, // loads begun meanwhile fail with probability `amount`
    kLeaseLoss,   // the membership forgets the node and takes it back with a new epoch when the fault ends; it runs on
    kNotice,      // told to drain; it leaves when the fault ends, and a new one comes half a second later
    kDefer,       // steps begun meanwhile are deferred with probability `amount`
    kApart,       // nothing passes between the node and `peer`; both talk with the router
    kStreamLost,  // the stream between the node and gateway `peer` breaks; both hear so, and when it is there again
    kGatewayCrash,    // gateway `node` is lost with all that it knew; back, with a new life, when the fault ends
    kControllerCrash, // nobody balances until the fault ends
  } kind = Kind::kCrash;
  uint32_t node = 0;
  TimePoint at{};
  Duration lasts{0};
  double amount = 0;
  uint32_t peer = 0;
};

// What an operator does while requests come.
struct AdminChange {
  enum class Kind : uint8_t {
    kConfigure,  // the model's objective is `slo` from now on; acknowledged at once, and to hold on every node there will be
    kLoad,       // to be resident; acknowledged when the router hears that it is, or reported failed
    kUnload,     // to go when nobody uses it; nothing is acknowledged
    kAdd,        // the model is served from now on, and not before
    kRetire,     // takes no new requests, and is gone when the last one ended
  } kind = Kind::kConfigure;
  ModelId model;
  TimePoint at{};
  SloTarget slo;
};

// Only for tests that show what the checkers find: stands between the roles and their world, and spoils what passes.
struct Interceptor {
  std::function<bool(NodeId, Event&)> event;                  // to a role (kRouterId: the router); false: swallowed
  std::function<void(NodeId, std::vector<Effect>&)> effects;  // of a role
};

struct WorldSetup {
  uint64_t seed = 1;
  std::vector<NodeSpec> nodes;     // every node knows the same models
  LinkSpec link;
  uint32_t gateways = 1;           // several are members of the cluster, share the requests, and leave balancing to a controller
  uint32_t requests_max = 10'000;  // RouterConfig
  uint32_t replays_max = 8;
  RoleOptions roles;
  bool place_by_load = false;      // RouterConfig
  Duration balance_interval = std::chrono::seconds(2);
  std::unique_ptr<Workload> workload;
  std::vector<Fault> faults;
  std::vector<AdminChange> admin;
  Duration lease = std::chrono::seconds(2);
  // Devices that remember every token of every block, the checks of every role after each event, every token compared
  // with the undisturbed answer. For small scenarios.
  bool strict = false;
  bool through_codec = false;      // messages are encoded and decoded on the way
  Duration no_end_after = std::chrono::hours(1);  // without a new request and without a token: what is unfinished then hangs
  Duration overtaken_max = std::chrono::minutes(10);  // I6: nobody is overtaken by his own class for longer
  uint64_t late_tokens_max = UINT64_MAX;  // of ended requests; beyond them the run is given up
  double sample_seconds = 0;       // of the time lines; 0: none
  size_t spans_max = 0;            // of the devices' time lines
  std::shared_ptr<const Interceptor> interceptor;
};

}  // namespace shoal
