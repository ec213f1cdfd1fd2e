// The router: which node serves a request, and what of its tokens the client has seen. Pure state machine; one owner
// thread (a gateway's router loop, or the simulator).
#pragma once

#include <map>
#include <set>
#include <unordered_map>
#include <vector>

#include "membership/cluster_state.h"
#include "policy/placement.h"
#include "roles/balancer.h"
#include "roles/effect.h"
#include "roles/event.h"

namespace shoal {

struct RouterConfig {
  NodeId self;
  uint32_t requests_max = 10'000;  // accepted and not ended
  uint32_t replays_max = 3;        // re-placements of one request that nodes gave up; losses of nodes do not count
  RoleOptions roles;
  bool place_by_load = false;      // policy/placement.h
  Duration balance_interval = std::chrono::seconds(2);  // of its Balancer; max(): somebody else's business
  Duration hold_max = std::chrono::seconds(30);  // an accepted request waits so long for a node when the last one is lost
  uint32_t life = 0;               // its epoch in the cluster: in the ids of the requests that it takes
};

class Router {
 public:
  explicit Router(const RouterConfig& config);

  // Handles NewRequest, ClientGone, ResidencyWanted, SettingsWanted, MessageFrom{Tokens, Handover, NodeStatus},
  // ClusterChanged, DrainRequested and Tick. Every request ends in exactly one of: Deliver with finish, Refuse, ClientGone.
  std::vector<Effect> handle(const Event& event, TimePoint now);

  size_t live_requests() const { return journal_.size() + held_.size(); }
  const std::map<NodeId, NodeStatus>& node_status() const { return status_; }
  bool draining() const { return draining_; }
  void check() const;  // journal and per-node counts agree

 private:
  static constexpr NodeId kNobody{UINT32_MAX};
  struct Entry {
    Request request;  // with the output delivered so far: replaying it elsewhere continues at the next index
    NodeId node = kNobody;  // has it, or had it last, and lives
    TimePoint deadline;
    uint32_t replays = 0;
    bool prompt_scores_delivered = false;
    TimePoint held_until = kForever;  // while no node serves its model
    std::optional<KvTicket> kv;  // went with the last Submit: if that node is lost, so is who would say KvTaken
  };
  // What this router knows of a node beside its report.
  struct Placed {
    uint32_t live = 0;            // requests there
    // Since the last report, as predicted: of the prompts placed there, of the switches that they cause, to which models, and what
    // their answers add to its pressure.
    double seconds = 0, switch_seconds = 0, pressure = 0;
    std::set<ModelId> coming;
    uint32_t waiting = 0;         // requests, by its last report
  };

  void on_new(const NewRequest& event, TimePoint now, std::vector<Effect>& effects);
  void on_gone(RequestId id, std::vector<Effect>& effects);
  void on_message(const MessageFrom& event, TimePoint now, std::vector<Effect>& effects);
  void on_tokens(NodeId from, const Tokens& tokens, TimePoint now, std::vector<Effect>& effects);
  void on_cluster(const ClusterState& state, TimePoint now, std::vector<Effect>& effects);
  void on_peer_lost(NodeId node, TimePoint now, std::vector<Effect>& effects);
  std::vector<NodeId> hosts(ModelId model) const;
  void send_to_hosts(ModelId model, const Message& message, std::vector<Effect>& effects);
  void send_settings(const Member& member, std::vector<Effect>& effects) const;
  Status overdue(const Entry& entry) const;
  void expire(TimePoint now, std::vector<Effect>& effects);
  void list_hosts();
  NodeView view_of(const Member& member, const Entry& entry, TimePoint now) const;
  Placement choose(const Entry& entry, Phase phase, TimePoint now) const;
  void note_placed(const Entry& entry, Phase phase);
  void submit(Entry entry, TimePoint now, std::vector<Effect>& effects, Phase phase = Phase::kPrompt);
  void on_status(NodeId from, const NodeStatus& status, TimePoint now, std::vector<Effect>& effects);
  void on_handover(NodeId from, const Handover& message, TimePoint now, std::vector<Effect>& effects);
  void give_up_or_place(Entry entry, const Status& why, TimePoint now, std::vector<Effect>& effects, Duration retry_after = std::chrono::seconds(1));
  void place_again(Entry entry, TimePoint now, std::vector<Effect>& effects);
  bool hold(Entry& entry, TimePoint now);
  bool served_by_lost(ModelId model) const;
  void try_lost_again(TimePoint now, std::vector<Effect>& effects);
  void place_held(TimePoint now, std::vector<Effect>& effects);
  Entry take(RequestId id);
  void give_up_ticket(const Entry& entry, std::vector<Effect>& effects) const;

  const RouterConfig config_;
  ClusterState cluster_;
  std::map<ModelId, std::vector<NodeId>> hosts_;  // nodes of cluster_ that list a model, ascending
  std::map<NodeId, NodeStatus> status_;           // models ascending
  Balancer balancer_;
  // In the cluster, and not heard of since messages were lost: nothing is placed there until then. Its report may have been lost, too.
  std::map<NodeId, TimePoint> lost_;
  std::map<NodeId, Placed> placed_;
  std::unordered_map<RequestId, Entry> journal_;
  std::map<RequestId, Entry> held_;  // accepted, and on no node at this moment
  std::set<std::pair<TimePoint, RequestId>> deadlines_;
  std::map<ModelId, Configure> settings_;  // as changed since the start, for nodes that join later
  bool draining_ = false;
};

}  // namespace shoal
