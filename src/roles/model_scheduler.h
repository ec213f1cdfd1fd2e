// Who is on the device, whose step is next, and who gives up memory when it is short: asks the policies (model_switch,
// turns, relief), and applies what they say to the models and their engines.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "policy/model_switch.h"
#include "policy/relief.h"
#include "policy/turns.h"
#include "roles/device_log.h"
#include "roles/event.h"
#include "roles/handovers.h"
#include "roles/home_coming.h"
#include "roles/load_desk.h"
#include "roles/request_table.h"
#include "roles/steps_in_flight.h"
#include "roles/switch_log.h"
#include "roles/turn_quotas.h"

namespace shoal {

// What there is to report, noted by whoever did it.
struct NodeJournal {
  SwitchLog switches;
  DeviceLog device;
  bool changed = true;            // since the last report
  bool residency_changed = true;
  void residency() { changed = residency_changed = true; }
};

class ModelScheduler {
 public:
  // What it works with; all outlive it.
  struct Rooms {
    const NodeConfig& config;
    Catalogue& catalogue;
    Handovers& handovers;
    RequestTable& requests;
    LoadDesk& loads;
    TurnQuotas& quotas;
    NodeJournal& journal;
  };
  explicit ModelScheduler(const Rooms& rooms);

  // Everything that is to begin now: drops, loads, copies, a step.
  void schedule(TimePoint now, std::vector<Effect>& effects);

  HomeComing& home() { return home_; }
  const StepsInFlight& in_flight() const { return in_flight_; }
  uint64_t moves() const { return moves_; }  // of KV, under way
  // Of the step that ended: what it computed, and the seconds that the device computed it. REQUIRES: one of this model is in flight.
  struct EndedStep {
    StepWork work;
    double seconds = 0;
  };
  EndedStep end_step(ModelId model, Duration away, TimePoint now);
  // Copies its KV where `move` says.
  void begin_move(const HostedModel& hosted, KvMove move, TimePoint now, std::vector<Effect>& effects);
  void end_move(const KvCopied& event, TimePoint now, std::vector<Effect>& effects);
  // `keep_cached`: what its prefixes hold stays until somebody needs the memory. REQUIRES: resident, not in a step.
  void drop_weights(HostedModel& hosted, bool keep_cached, std::vector<Effect>& effects);
  // Until a request of this model ends, nobody else admits.
  bool protects(ModelId model) const { return protected_ && protected_->model == model; }

  // Those that wait for the device, the next one first.
  std::vector<ModelId> next_models(TimePoint now) const;

 private:
  // The device ran out of memory with several models under way: until this request ends, only its model admits.
  struct Protected {
    ModelId model;
    RequestId request;
  };

  // Who is on the device.
  void switch_models(TimePoint now, std::vector<Effect>& effects);
  void update_wants(TimePoint now, std::vector<Effect>& effects);
  void let_expire(HostedModel& hosted, TimePoint now, std::vector<Effect>& effects);
  SwitchPlan plan_of_switch(TimePoint now) const;
  ModelView view_of(const HostedModel& hosted, TimePoint now) const;
  void hold_admissions(const SwitchPlan& plan, TimePoint now, std::vector<Effect>& effects);
  void apply(const SwitchPlan& plan, TimePoint now, std::vector<Effect>& effects);
  void wait_for_room(const SwitchPlan& plan, TimePoint now, std::vector<Effect>& effects);
  void begin_load(HostedModel& wanted, TimePoint now, std::vector<Effect>& effects);
  void cancel_unwanted_load(std::vector<Effect>& effects);
  void cancel_load(std::vector<Effect>& effects);
  bool anybody_waits() const;

  // Whose step is next.
  void start_step(TimePoint now, std::vector<Effect>& effects);
  bool may_begin() const;
  std::vector<StepView> step_views(TimePoint now);
  bool may_step(const HostedModel& hosted, TimePoint now) const;
  bool begin_step(HostedModel& hosted, TimePoint now, std::vector<Effect>& effects);
  void note_stalls(TimePoint now);

  // Memory.
  void park_ahead(TimePoint now, std::vector<Effect>& effects);
  void unpark(TimePoint now, std::vector<Effect>& effects);
  std::vector<ReliefView> relief_views(TimePoint now) const;
  bool apply(const ReliefPlan& plan, TimePoint now, std::vector<Effect>& effects);  // true: something came free at once

  bool token_level() const { return config_.scheduling == Scheduling::kToken; }

  const NodeConfig& config_;
  Catalogue& catalogue_;
  Handovers& handovers_;
  RequestTable& requests_;
  LoadDesk& loads_;
  TurnQuotas& quotas_;
  NodeJournal& journal_;
  HomeComing home_;
  StepsInFlight in_flight_;
  uint64_t steps_ = 0;
  uint64_t moves_ = 0;
  std::optional<Protected> protected_;
};

}  // namespace shoal
