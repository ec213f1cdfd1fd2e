// The virtual body: production Router, Nodes and Engines over an event heap, one thread, one seed.
//
// Same seed, same trace hash. Every event ends with check() of every role, so a broken invariant names the first event
// that broke it.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <queue>
#include <set>
#include <string>
#include <vector>

#include "base/rng.h"
#include "roles/node.h"
#include "roles/router.h"
#include "sim/device.h"

namespace shoal {

struct Scenario {
  uint64_t seed = 1;
  uint32_t nodes = 1;
  uint32_t models = 2;
  uint32_t pages = 24;                 // of each node's device
  uint32_t host_pages = 0;             // of the tier below it
  uint32_t requests = 40;
  double requests_per_second = 50;
  uint32_t prompt_max = 120;
  uint32_t output_max = 60;
  uint32_t max_model_len = 256;
  uint32_t weight_pages = 0;           // of every model; 0: drawn
  uint64_t kv_block_bytes = 0;         // of every model; 0: drawn
  double cancel_probability = 0.2;
  double deadline_probability = 0.05;  // of a deadline that is probably missed
  double load_failure_probability = 0.0;
  double crashes_per_second = 0.0;     // of a node; it comes back empty half a second later
  double shared_prefix_probability = 0.5;
  BatchLimits limits{64, 8, 8, true};
  bool prefix_cache = true;
  Scheduling scheduling = Scheduling::kToken;
  TurnOptions turns;
  SloTarget slo;
  Duration max_wait = Duration::max();
  bool through_codec = false;          // messages are encoded and decoded on the way
  CostModel cost;

  // A scenario of everything at once, drawn from the seed: sizes, rates, memory pressure and faults.
  static Scenario random(uint64_t seed);
};

struct Outcome {
  uint64_t trace_hash = 0;
  uint64_t events = 0;
  uint64_t steps = 0;
  uint64_t finished = 0;
  uint64_t cancelled = 0;
  uint64_t refused = 0;
  uint64_t preemptions = 0;
  uint64_t copies = 0;
  uint64_t loads = 0;
  uint64_t prefix_hits = 0;
  uint64_t crashes = 0;
  Attainment attainment;
  double first_token_seconds_max = 0;  // from arrival
  double gap_seconds_max = 0;          // between two tokens of an answer
  double virtual_seconds = 0;
  std::vector<std::string> violations;  // empty, or what went wrong
};

// Runs the scenario to its end: every request ended, every device idle.
Outcome run_scenario(const Scenario& scenario);

class World {
 public:
  explicit World(const Scenario& scenario);
  ~World();
  Outcome run();

 private:
  struct NodeBody {
    NodeConfig config;
    std::unique_ptr<Node> node;  // null while crashed
    std::unique_ptr<SimDevice> device;
    uint32_t epoch = 0;          // of this life
    TimePoint wake = kForever;
    TimePoint copies_end{};      // of those asked for so far
  };
  struct Client {
    Request request;
    uint32_t received = 0;
    std::optional<TokenScore> score;  // once it was sent
    TimePoint last_token{};           // or when it was sent
    uint64_t context = kEmptyContext;
    std::vector<TokenId> output;
    std::string end;  // how it ended; empty while it runs
  };
  struct HeapItem {
    TimePoint at;
    uint64_t order;
    std::function<void()> act;
    bool operator>(const HeapItem& other) const { return std::pair(at, order) > std::pair(other.at, other.order); }
  };

  void at(TimePoint when, std::function<void()> act);
  void after(Duration delay, std::function<void()> act) { at(now_ + delay, std::move(act)); }
  void note(uint64_t a, uint64_t b = 0, uint64_t c = 0);  // into the trace hash
  void violate(std::string what);

  NodeModel make_model(uint32_t index);
  void start_node(uint32_t index);
  void crash_node(uint32_t index);
  void to_router(const Event& event);
  void to_node(uint32_t index, const Event& event);
  void perform_router(const Effect& effect);
  void perform_node(uint32_t index, const Effect& effect);
  void copy_kv(uint32_t index, const CopyKv& effect);
  void send(NodeId from, NodeId to, const Message& message);
  void publish_cluster(const MemberEvent& event);
  void schedule_workload();
  Request make_request(uint64_t id);
  void on_deliver(const Tokens& tokens);
  void on_refuse(const Refuse& refuse);
  void end_client(Client& client, const std::string& how);
  void check_all();
  void check_end();

  Scenario scenario_;
  Rng rng_;
  TimePoint now_{};
  uint64_t next_order_ = 0;
  std::priority_queue<HeapItem, std::vector<HeapItem>, std::greater<>> heap_;
  std::vector<NodeModel> models_;
  std::vector<NodeBody> nodes_;
  std::unique_ptr<Router> router_;
  TimePoint router_wake_ = kForever;
  ClusterState cluster_;
  std::map<std::pair<uint32_t, uint32_t>, TimePoint> link_free_;  // keeps messages of one link in order
  std::map<RequestId, Client> clients_;
  std::vector<std::vector<TokenId>> prefixes_;
  uint32_t unfinished_ = 0;
  Outcome outcome_;
};

}  // namespace shoal
