// A node: one device, many models, one step at a time. Pure state machine; one owner thread.
//
//   Submit -> engine(model).submit --+
//                                    v
//   not resident: plan_switch or plan_token_switch -> trim, drop, LoadWeights .. WeightsReady
//   resident:     next_turn -> begin_step -> StartStep .. StepDone -> finish_step -> Send{Tokens}
//
// node.cc: events in. node_models.cc: which models it has. node_loads.cc: their weights come, or do not. node_report.cc: what it says of itself. node_turns.cc: who
// is on the device, and whose step is next. node_memory.cc: KV between the tiers, and who gives up what when memory
// runs out. node_handover.cc: requests that go on at another node, or come from one.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "engine/engine.h"
#include "memory/residency.h"
#include "policy/decode_turns.h"
#include "policy/estimator.h"
#include "policy/model_switch.h"
#include "policy/prefill_groups.h"
#include "policy/slo.h"
#include "policy/turns.h"
#include "roles/device_log.h"
#include "roles/effect.h"
#include "roles/event.h"
#include "roles/node_config.h"
#include "roles/switch_log.h"

namespace shoal {

class Node {
 public:
  // REQUIRES: every model fits the device alone (fitting_model_len() >= its max_model_len).
  explicit Node(const NodeConfig& config);
  ~Node();

  // Handles MessageFrom{Submit, Cancel, SetResident, Configure, KvWanted, KvGranted, KvTaken, SetDuty, Shed}, StepDone,
  // WeightsReady, WeightsPacked, KvCopied, LoadProgress, DigestKnown, ModelAdded, ModelRetired, ClusterChanged, DrainRequested and Tick.
  std::vector<Effect> handle(const Event& event, TimePoint now);

  // Measured so far, by model.
  std::map<ModelId, ModelEstimator> costs() const;

  bool idle() const;            // no request, no step, no load, no copy
  bool step_in_flight() const { return stepping_.has_value(); }
  NodeStatus status() const;
  // As it is served now; null if it is not. Valid until the next event.
  const NodeModel* model(ModelId id) const;
  // I5: weights + KV + free == device pages; every engine and pool holds; every live request has one owner.
  void check() const;

 private:
  struct Hosted {
    NodeModel facts;
    std::unique_ptr<Engine> engine;
    BlockPool* blocks = nullptr;     // of its shape class
    uint32_t kv_pages = 0;           // kv_pages_min()
    bool pinned = false;             // to be there at all times
    bool asked = false;              // by SetResident: to be loaded, and then like any other
    bool chosen = false;             // static scheduling: one of those that fit together
    Status excluded;                 // else why not
    bool retired = false;            // goes when its last request has ended; those end here
    bool unload_asked = false;       // and to go when nobody uses it
    bool fresh = false;              // loaded, and not given a token since: not to be dropped for the next in line
    bool stalled = false;            // within one choice of a step: nothing it could compute
    TimePoint stalled_since = kForever;
    uint32_t deferrals = 0;       // of its steps, since one was not
    TimePoint deferred_until{};   // it is not tried before
    TimePoint wanted_since = kForever;
    bool read_ahead = false;         // asked for since it is wanted
    Engine::Demand demand;           // as of the last choice of a step, if it was runnable
    std::string load_error;
    float progress = 0.0f;
    uint64_t last_turn = 0;          // number of the last step
    uint64_t loads = 0;
    ModelDigest weights;             // of the last load; none yet
    uint32_t prompts_queued = 0;     // in prompts_
    ModelEstimator costs;
    double quota_seconds = Turn::kUnlimited;  // of its turn on the device
    double planned_quota = 0;        // by the last plan of a round that it was in
    double spent_seconds = 0;        // of it, by steps after the first
    uint64_t turn_steps = 0;
  };
  struct Owner {
    NodeId gateway;
    uint32_t epoch = 0;
    ModelId model;
    uint64_t order = 0;  // of submission to this node
    bool stays = false;  // came back: nobody else would take it
    bool prompt_queued = false;  // in prompts_: no step yet
    TimePoint begin_by = kForever;  // in bounds_: no step yet
    ModelDigest weights;         // that computed its KV or output so far; none yet
  };
  using Owners = std::unordered_map<RequestId, Owner>;
  // The device ran out of memory with several models under way: until this request ends, only its model admits.
  struct Pressure {
    ModelId model;
    RequestId request;
  };
  // A load whose whole cost the step in flight will tell.
  struct EndedLoad {
    ModelId model;
    double seconds = 0;
    double waited_seconds = 0;
  };
  // KV on the host tier of this node that somebody has a ticket for. Once a node was granted it, only that node, or its end,
  // gives the blocks back: it may be reading them. Before that it ends with the gateway that has the ticket, or in time.
  struct Offer {
    ModelId model;
    uint64_t block_bytes;
    NodeId gateway;
    std::vector<BlockId> blocks;
    std::optional<NodeId> taker;
    TimePoint due;  // without a taker it ends then; else the taker is asked whether it still needs it
  };
  // A request that cannot be accepted yet: its ticket's node has not answered, or the step or the copy that writes for its
  // withdrawn self has not ended.
  struct Awaiting {
    NodeId gateway;
    Submit submit;
    TimePoint since;
    Submit at(TimePoint now) const {  // as if it came now
      Submit later = submit;
      later.waited += now - since;
      return later;
    }
  };
  using AwaitingList = std::map<RequestId, Awaiting>;
  // KV of a request here that is still on another node, granted.
  struct Fetch {
    ModelId model;
    KvTicket ticket;
  };
  // What a model that is away waits for before its own switch.
  struct TurnsAhead {
    uint32_t places = 0;         // models with work on the device
    double soonest_end = Turn::kUnlimited;  // of one of their turns, in seconds of it
    double waiting_seconds = 0;  // switches and turns of the models with work that are away
  };

  void host_model(const NodeModel& facts);
  void choose_static();
  void wake(Hosted& hosted);
  void let_sleep(TimePoint now, std::vector<Effect>& effects);
  void on_submit(NodeId from, const Submit& message, TimePoint now, std::vector<Effect>& effects);
  void take_withheld(TimePoint now, std::vector<Effect>& effects);
  void forget(AwaitingList& list, AwaitingList::iterator entry, std::vector<Effect>& effects);
  bool accept(NodeId from, const Submit& message, const std::optional<HostKv>& kv, TimePoint now, std::vector<Effect>& effects);
  void on_cancel(const Cancel& message, std::vector<Effect>& effects);
  void on_message(const MessageFrom& event, TimePoint now, std::vector<Effect>& effects);
  void on_model_retired(const ModelRetired& event);
  void on_set_resident(const SetResident& message, TimePoint now);
  void on_configure(const Configure& message);
  void on_step_done(const StepDone& event, TimePoint now, std::vector<Effect>& effects);
  void on_step_deferred(Hosted& hosted, const StepResult& result, TimePoint now, std::vector<Effect>& effects);
  void count_step(Hosted& hosted, double seconds);
  void on_kv_copied(const KvCopied& event, TimePoint now, std::vector<Effect>& effects);
  void fail_requests_of(Hosted& hosted, const Status& why, std::vector<Effect>& effects);
  void refuse(NodeId to, const Request& request, const Status& why, std::vector<Effect>& effects, Duration retry_after = Duration(0));
  void fail(Owners::iterator owner, const Status& why, std::vector<Effect>& effects, Duration retry_after = Duration(0));
  void end_waits(TimePoint now, std::vector<Effect>& effects);
  Status may_take(const Hosted& hosted, Duration waited, Duration wait) const;
  void queue_prompt(const Request& request, Owner& owner, Hosted& hosted, TimePoint now);
  void begun(RequestId request, Owner& owner);  // its first step, or its end
  void erase(Owners::iterator owner);
  void withdraw(Owners::iterator owner, std::vector<Effect>& effects);
  void flush_slab_changes(std::vector<Effect>& effects);
  std::vector<ModelId> next_models(TimePoint now) const;
  void report(TimePoint now, std::vector<Effect>& effects);

  // node_loads.cc
  static Status could_not_load(const NodeModel& model, const Status& why);
  static Status replaced(const NodeModel& model, bool begun);
  void observe_switch(const EndedLoad& load, double extra_seconds);
  void on_weights_ready(const WeightsReady& event, TimePoint now, std::vector<Effect>& effects);
  void on_load_cancelled(const WeightsReady& event, TimePoint now, std::vector<Effect>& effects);
  void on_weights_packed(const WeightsPacked& event, TimePoint now, std::vector<Effect>& effects);
  void end_failed_packing(std::vector<Effect>& effects);
  void end_begun_with_others(Hosted& hosted, std::vector<Effect>& effects);
  void forget_computed(Hosted& hosted);

  // node_report.cc
  double prompt_pressure() const;
  double decode_alpha() const;
  void tell(const Hosted& hosted, const TurnsAhead& turns, ModelStatus& status) const;

  // node_handover.cc
  void hand_over_leaving(TimePoint now, std::vector<Effect>& effects);
  void hand_over(RequestId request, const Owner& owner, TimePoint now, std::vector<Effect>& effects);
  void on_shed(const Shed& message);
  void on_kv_wanted(NodeId from, const KvWanted& message, std::vector<Effect>& effects);
  void on_kv_taken(NodeId from, const KvTaken& message, TimePoint now);
  void withdraw(const Offer& offer);
  void end_offers(TimePoint now, std::vector<Effect>& effects);
  void forget_gateway(NodeId gateway, std::vector<Effect>& effects);
  bool await_kv(NodeId from, const Submit& message, TimePoint now, std::vector<Effect>& effects);
  void on_kv_granted(NodeId from, const KvGranted& message, TimePoint now, std::vector<Effect>& effects);
  bool take_back(NodeId from, const Submit& message, TimePoint now, std::vector<Effect>& effects);
  void release(RequestId request, const KvTicket& ticket, std::vector<Effect>& effects);
  std::optional<KvTicket> pass_on(RequestId request, std::vector<Effect>& effects);
  void settle_fetch(RequestId request, std::vector<Effect>& effects);
  void on_cluster(const ClusterState& state, TimePoint now, std::vector<Effect>& effects);

  // node_turns.cc
  void switch_models(TimePoint now, std::vector<Effect>& effects);
  SwitchPlan plan_of_switch(TimePoint now) const;
  void update_wants(TimePoint now, std::vector<Effect>& effects);
  void update_quotas(TimePoint now);
  void hold_admissions(const SwitchPlan& plan, TimePoint now, std::vector<Effect>& effects);
  void apply(const SwitchPlan& plan, TimePoint now, std::vector<Effect>& effects);
  void begin_load(Hosted& wanted, TimePoint now, std::vector<Effect>& effects);
  void cancel_load(std::vector<Effect>& effects);
  void cancel_unwanted_load(std::vector<Effect>& effects);
  void start_step(TimePoint now, std::vector<Effect>& effects);
  bool begin_step(Hosted& hosted, TimePoint now, std::vector<Effect>& effects);
  uint32_t step_tokens(const Hosted& hosted) const;
  std::vector<StepView> step_views(TimePoint now);
  void note_stalls(TimePoint now);
  void drop_weights(Hosted& hosted, bool keep_cached, std::vector<Effect>& effects);
  ModelView view_of(const Hosted& hosted, TimePoint now) const;
  uint32_t idle_kv_pages(const Hosted& hosted) const;
  double switch_seconds(const Hosted& hosted) const;
  TurnsAhead turns_ahead() const;
  double planned_quota(const Hosted& hosted) const;
  double decode_seconds(const Hosted& hosted, const Engine::Demand& demand) const;
  double token_seconds(const Hosted& hosted, const Engine::Demand& demand) const;
  Duration predicted_wait(const Hosted& hosted, const TurnsAhead& turns) const;
  bool resident(const Hosted& hosted) const { return residency_.state(hosted.facts.model) == WeightsState::kOnDevice; }
  bool fits_beside_pinned(const Hosted& hosted) const;
  bool token_level() const { return config_.scheduling == Scheduling::kToken; }

  // node_memory.cc
  bool free_stuck_memory(TimePoint now, std::vector<Effect>& effects);
  bool drop_cached_of_another(const Hosted& hosted);
  bool take_memory_for(const Hosted& hosted, TimePoint now, std::vector<Effect>& effects);
  bool take_kv_of_absent(TimePoint now, std::vector<Effect>& effects);
  Hosted* absent_with_kv(TimePoint now);
  void park_ahead(TimePoint now, std::vector<Effect>& effects);
  void unpark(TimePoint now, std::vector<Effect>& effects);
  void move_kv(const Hosted& hosted, KvMove move, TimePoint now, std::vector<Effect>& effects);
  uint32_t pages_coming() const;
  uint32_t pages_spoken_for() const;
  uint64_t reserve() const;
  bool preempt_for_oldest();
  bool drop_least_recent(bool with_waiting, TimePoint now, std::vector<Effect>& effects);

  const NodeConfig config_;
  PagePool pages_;
  HostTier host_;
  Residency residency_;
  std::map<uint64_t, std::unique_ptr<BlockPool>> shape_classes_;  // by bytes per block
  std::map<ModelId, Hosted> models_;   // the whole catalogue
  std::map<ModelId, Hosted&> awake_;   // those that have work, hold or want something: all that a decision looks at
  Owners owners_;
  std::optional<ModelId> stepping_;
  std::optional<ModelId> loading_;
  bool cancelling_ = false;          // the load under way
  struct Packing {
    ModelId model;
    bool stepped = false;            // once: its next step comes sooner after the load than beside it
    bool cancelling = false;
    Status failed = OkStatus();      // its weights have to go, when no step of it is under way
  };
  std::optional<Packing> packing_;   // it is on the device and computes, and its load goes on
  TimePoint load_wanted_since_{};    // Hosted::wanted_since of the load under way
  std::optional<ModelId> planned_;   // room is being made for it
  SwitchLog switches_;
  DeviceLog log_;
  uint64_t moves_ = 0;         // of KV, under way
  Duty duty_;
  std::map<std::pair<RequestId, uint32_t>, Offer> offers_;  // by request and epoch
  AwaitingList awaiting_;  // their KV
  AwaitingList withheld_;  // until their withdrawn selves are gone
  TimePoint offers_due_ = kForever;         // the first of Offer::due, or earlier
  std::map<RequestId, Fetch> fetches_;
  std::set<RequestId> leaving_;      // to be handed over as soon as their KV is where it can be fetched
  std::map<NodeId, uint32_t> lives_; // epochs of the members, as last heard
  bool heard_cluster_ = false;
  std::optional<Pressure> pressure_;
  RoundMembers round_;
  PrefillQueue prompts_;
  std::set<std::pair<TimePoint, RequestId>> bounds_;  // Owner::begin_by
  RoundPlan round_plan_;
  bool contended_ = false;     // models with work do not all fit the device
  MovingMean load_seconds_per_byte_;
  TimePoint load_began_{};
  Duration load_waited_{0};    // of the load under way: time in which no step ran, or by which steps took longer
  std::optional<EndedLoad> ended_load_;  // within the step under way
  bool step_beside_load_ = false;  // for a part of the step under way
  bool step_beside_packing_ = false;
  TimePoint idle_since_{};     // no step since
  TimePoint step_began_{};
  StepWork step_work_;
  uint64_t turn_ = 0;
  uint64_t next_order_ = 1;
  uint64_t status_version_ = 0;
  TimePoint next_report_{};
  bool changed_ = true;        // since the last report
  bool residency_changed_ = true;
  bool draining_ = false;
};

}  // namespace shoal
