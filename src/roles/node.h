// A node: one device, many models, one step at a time. Pure state machine; one owner thread.
//
//   Submit -> engine(model).submit --+
//                                    v
//   not resident: plan_switch or plan_token_switch -> trim, drop, LoadWeights .. WeightsReady
//   resident:     next_turn -> begin_step -> StartStep .. StepDone -> finish_step -> Send{Tokens}
//
// Node decides order only. What it decides about lives in rooms that own their state: the models and their memory
// (catalogue.h), the requests (request_table.h), those that come from or go to other nodes (handovers.h), the one load of
// weights (load_desk.h), turns and predictions (turn_quotas.h), who is on the device and whose step is next
// (model_scheduler.h), and what is said of all that (node_reporter.h).
//
// node.cc: requests and steps. node_models.cc: models and their weights. node_handover.cc: other nodes.
#pragma once

#include <map>
#include <string_view>
#include <vector>

#include "roles/catalogue.h"
#include "roles/effect.h"
#include "roles/event.h"
#include "roles/handovers.h"
#include "roles/load_desk.h"
#include "roles/model_scheduler.h"
#include "roles/node_config.h"
#include "roles/node_reporter.h"
#include "roles/request_table.h"
#include "roles/turn_quotas.h"

namespace shoal {

class Node {
 public:
  // REQUIRES: every model fits the device alone (fitting_model_len() >= its max_model_len).
  explicit Node(const NodeConfig& config);
  ~Node();

  // Handles MessageFrom{Submit, Cancel, SetResident, Configure, KvWanted, KvGranted, KvTaken, SetInstanceRole, MigrateRequests}, StepDone,
  // WeightsReady, WeightsPacked, KvCopied, LoadProgress, DigestKnown, ModelAdded, ModelRetired, ClusterChanged, PeerLost,
  // PeerConnected, DrainRequested and Tick.
  std::vector<Effect> handle(const Event& event, TimePoint now);

  // Measured so far, by model.
  std::map<ModelId, ModelEstimator> costs() const;

  bool idle() const;            // no request, no step, no load, no copy
  bool step_in_flight() const { return scheduler_.in_flight().any(); }
  const LoadDesk& loads() const { return loads_; }
  const Handovers& handovers() const { return handovers_; }
  NodeStatus status() const { return reporter_.status(instance_role_); }
  // As it is served now; null if it is not. Valid until the next event.
  const NodeModel* model(ModelId id) const;
  // I5: weights + KV + free == device pages; every engine and pool holds; every live request has one owner.
  void check() const;

 private:
  void dispatch(const Event& event, TimePoint now, std::vector<Effect>& effects);
  void dispatch(const MessageFrom& event, TimePoint now, std::vector<Effect>& effects);

  // node.cc
  void on_submit(NodeId from, const Submit& message, TimePoint now, std::vector<Effect>& effects, std::string_view unknown_model = {});
  bool accept(NodeId from, const Submit& message, const std::optional<HostKv>& kv, TimePoint now, std::vector<Effect>& effects);
  Status may_take(const HostedModel& hosted, Duration waited, Duration wait) const;
  void queue_prompt(const Request& request, HostedModel& hosted, TimePoint now);
  void on_cancel(const Cancel& message, std::vector<Effect>& effects);
  void end_waits(TimePoint now, std::vector<Effect>& effects);
  void on_step_done(const StepDone& event, TimePoint now, std::vector<Effect>& effects);
  void on_step_deferred(HostedModel& hosted, const StepResult& result, TimePoint now, std::vector<Effect>& effects);
  void count_step(HostedModel& hosted, const ModelScheduler::EndedStep& step);
  void deliver(HostedModel& hosted, TokenDelta delta, std::vector<Effect>& effects);

  // node_models.cc
  void on_model_added(const ModelAdded& event);
  void on_model_retired(const ModelRetired& event);
  void on_set_resident(const SetResident& message, TimePoint now);
  void on_configure(const Configure& message);
  void choose_served();
  void forget_idle_models(TimePoint now, std::vector<Effect>& effects);
  void on_weights_ready(const WeightsReady& event, TimePoint now, std::vector<Effect>& effects);
  void on_load_cancelled(const WeightsReady& event, TimePoint wanted_since, TimePoint now, std::vector<Effect>& effects);
  void on_weights_packed(const WeightsPacked& event, TimePoint now, std::vector<Effect>& effects);
  void end_failed_packing(std::vector<Effect>& effects);
  void end_begun_with_others(HostedModel& hosted, std::vector<Effect>& effects);
  void forget_computed(HostedModel& hosted);

  // node_handover.cc
  void hand_over_leaving(TimePoint now, std::vector<Effect>& effects);
  void hand_over(RequestId id, TimePoint now, std::vector<Effect>& effects);
  void receive(NodeId from, const Submit& message, TimePoint now, std::vector<Effect>& effects);
  void on_kv_granted(NodeId from, const KvGranted& message, TimePoint now, std::vector<Effect>& effects);
  void end_lives(const MembershipChange& change, TimePoint now, std::vector<Effect>& effects);

  const NodeConfig config_;
  NodeJournal journal_;
  Catalogue catalogue_;
  Handovers handovers_;
  RequestTable requests_;
  LoadDesk loads_;
  TurnQuotas quotas_;
  ModelScheduler scheduler_;
  NodeReporter reporter_;
  InstanceRole instance_role_;
  bool draining_ = false;
};

// Why an answer, or a prompt, that was begun with weights that are no more cannot go on with those that are there.
Status weights_replaced(const NodeModel& model, bool begun);
Status could_not_load(const NodeModel& model, const Status& why);

}  // namespace shoal
