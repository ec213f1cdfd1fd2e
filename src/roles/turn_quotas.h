// How long each model's turn on the device is, and what follows from that: how long a request that comes now would wait, and
// how much of the device the answers under way need.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "policy/decode_turns.h"
#include "roles/catalogue.h"
#include "roles/load_desk.h"
#include "roles/request_table.h"
#include "roles/served_set.h"

namespace shoal {

// What a model that is away waits for before its own switch.
struct TurnsAhead {
  uint32_t places = 0;         // models with work on the device
  double soonest_end = Turn::kUnlimited;  // of one of their turns, in seconds of it
  double waiting_seconds = 0;  // switches and turns of the models with work that are away
};

class TurnQuotas {
 public:
  // All outlive this.
  TurnQuotas(const NodeConfig& config, Catalogue& catalogue, const RequestTable& requests, const LoadDesk& loads)
      : config_(config), catalogue_(catalogue), requests_(requests), loads_(loads), round_(config.turns), served_(config, catalogue, loads) {}

  // Turns have quotas only while somebody waits for the device. To be called when who has work, or is there, may have changed.
  void update(TimePoint now);
  TimePoint next_look() const { return served_.next(); }  // who has turns is decided anew then; past: at the next change
  void came(const HostedModel& hosted, TimePoint now) { served_.came(hosted, now); }  // a request for it
  void look_anew() { served_.look_anew(); }  // at the next change
  bool contended() const { return contended_; }  // models with work do not all fit the device
  bool is_due(ModelId model) const { return round_.is_due(model); }
  std::optional<ModelId> favoured() const { return served_.favoured(); }
  // Requests that cannot be on time any more begin where they cost nobody his time: at a model that is to give a token, and while
  // the device has nothing better to do or time to spare.
  void admit_late(TimePoint now);
  // A turn begins: its weights have come.
  static void begin_turn(HostedModel& hosted);
  void observe(const LoadDesk::Cost& cost);  // of a switch, for predictions

  // ---- predictions, in seconds ------------------------------------------------------------------------------------------

  double switch_to(const HostedModel& hosted) const;
  SwitchSeconds switch_if_away() const;  // 0 for models on the device; valid as long as this
  double decode(const HostedModel& hosted, const Engine::Demand& demand) const;
  // What passes while the device computes so long of this model: more, if its steps wait for experts.
  static double elapsed(const HostedModel& hosted, double computed);
  // Until the token of its requests that is due first: a step, and what is missing of its prompt.
  double next_token(const HostedModel& hosted, const Engine::Demand& demand) const;
  double prompt(const HostedModel& hosted, uint64_t begin, uint64_t tokens) const;
  // A step takes so many tokens of prompts as it has time for, if anybody reads.
  uint32_t step_tokens(const HostedModel& hosted) const;
  TurnsAhead turns_ahead() const;
  // Until a request of this model that comes now has its first step.
  // `payer`: of those that wait it has a fair share before it, nobody in particular: all of them.
  Duration wait(const HostedModel& hosted, const TurnsAhead& turns, const Payer& payer = {}) const;
  Duration wait(const HostedModel& hosted, const Payer& payer = {}) const { return wait(hosted, turns_ahead(), payer); }

  // ---- load of the device -----------------------------------------------------------------------------------------------

  // Seconds to compute all prompts that wait, over those until the first is due.
  double prompt_pressure(std::optional<ModelId> stepping) const;
  // Of the round, or while everybody has room: the share of time that keeping everybody's pace takes.
  double decode_pressure() const;
  // What one more answer of this model adds to that.
  double answer_pressure(const HostedModel& hosted) const;
  bool keeps_promise(const HostedModel& hosted, Duration slack) const { return served_.keeps_promise(hosted, slack); }
  SloTarget slo(const HostedModel& hosted) const { return served_.slo(hosted); }
  Prospects prospects(const HostedModel& hosted) const { return served_.prospects(hosted); }

 private:
  // How long a step of this model may take for those who read from others on the device: until the next token of one is due, or as leaves
  // all of them a step within their tbt. Who is late by more than two tokens is not waited for. Infinity: nobody reads.
  double time_of_others(const HostedModel& hosted) const;
  double readers_pressure() const;  // likewise decode_pressure(), of those on the device and with what is before their tokens
  void plan_turns(const std::vector<ModelId>& working, TimePoint now);
  double planned(const HostedModel& hosted) const;
  bool token_level() const { return config_.scheduling == Scheduling::kToken; }

  const NodeConfig& config_;
  Catalogue& catalogue_;
  const RequestTable& requests_;
  const LoadDesk& loads_;
  RoundMembers round_;
  ServedSet served_;
  RoundPlan plan_;
  bool contended_ = false;
};

}  // namespace shoal
