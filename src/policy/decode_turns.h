// Whose turn it is when more models have work than the device holds: weighted round robin with slack, after Aegaeon
// (SOSP'25, algorithm 2). Pure.
//
// A round runs every batch (one model's requests) once, batch i for a quota q_i of device time, between two loads of
// weights. With t_i the predicted seconds of a step and d_i the wanted seconds between tokens:
//
//   n_i   = d_i / t_i                 how much faster than reading it decodes
//   S     = sum 1 / n_i               share of the device that reading speed costs
//   c     = sum over distinct models of the switch seconds that nothing hides
//   alpha = max(c / (min n_i * QMAX) + S, 0.5)
//   q_i   = c / (n_i * (alpha - S))   so every batch gains q_i * n_i = c / (alpha - S) seconds of reading
//
// Slow batches get more time. alpha > 1: more is wanted than the device can give, and 1 / alpha of it is attained.
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/time.h"

namespace shoal {

// Each improvement on the paper has a switch, so that its effect can be measured.
struct TurnOptions {
  // QMAX. The paper: 4. 0: 2.5 times the measured switch, within [0.25, 4]; and up to 1 s, 12 times what a switch costs the
  // device, so that quick switches that take the cores of the steps do not eat more than a twelfth of them. As much more, up to 4, as
  // keeps alpha from exceeding 1, unless the round would be longer than a first token may take.
  double quota_max_seconds = 0;
  bool least_slack_first = true;     // else in the order of arrival
  bool enter_running_round = true;   // a new batch comes in by its slack; else it waits for the next round
  bool end_early = true;             // a turn may end before its quota for one that would be late otherwise
  bool recompute = true;             // quotas follow changes of membership; else they hold for the turn
  // No quota is shorter than two switches: one alone would not hide the next, and with little to do the formula would
  // rather switch most of the time than let anybody read ahead.
  bool cover_switch = true;
  bool triage = true;                // who cannot be on time any more stands behind all who can
  bool narrow = true;                // turns only among those for whom they bring more tokens on time (policy/rehearsal.h)
  // Who was away for so long comes first, the longest first, one at a time (roles/served_set.h).
  Duration dark_max = std::chrono::minutes(1);
  static TurnOptions paper() { return {4.0, false, false, false, false, false, false, false}; }
  friend bool operator==(const TurnOptions&, const TurnOptions&) = default;
};

struct TurnBatch {
  ModelId model;
  double step_seconds = 0;      // t
  double tbt_seconds = 0.1;     // d
  double switch_seconds = 0;    // of a switch to it
  double waited_seconds = 0;    // of these, what nothing hides
  Duration slack{0};            // the least of its requests'
  double ttft_seconds = 10;     // that a first token may take
};

struct Turn {
  ModelId model;
  double quota_seconds = kUnlimited;
  static constexpr double kUnlimited = std::numeric_limits<double>::infinity();
  friend bool operator==(const Turn&, const Turn&) = default;
};

struct RoundPlan {
  std::vector<Turn> turns;
  double alpha = 0.5;
  double round_seconds = 0;  // switches and quotas; 0 without quotas
  double attainment() const { return alpha <= 1 ? 1 : 1 / alpha; }
};

// The quotas of one round, in the order of its turns: batches of one model side by side, then by least slack (ties and
// the paper's order: as given). One model, or nothing to switch: no quota.
RoundPlan plan_round(std::span<const TurnBatch> batches, const TurnOptions& options);

double quota_max_seconds(std::span<const TurnBatch> batches, const TurnOptions& options);

// A running turn, and one that waits for its room on the device.
struct EarlyEndView {
  Duration running_slack{0};         // the least of the running batch
  double running_switch_seconds = 0; // to bring it back
  double running_spent_seconds = 0;  // of its turn, by steps
  Duration waiting_slack{0};
  double waiting_switch_seconds = 0;
  double waiting_step_seconds = 0;
  bool waiting_queued = false;       // some of its requests are not under way yet
};
// Whether the running turn should end for the waiting one. That one is late unless its switch begins now, and is not so yet (or turns
// would be cut short without end while not everybody can be on time). The running one has buffered enough to come back without being
// late, and has computed for twice as long as its switch took, unless the other has requests that have not begun (or two of them would
// take the device from each other every few tokens, while others wait).
bool ends_early(const EarlyEndView& view, const TurnOptions& options);

// Who had a turn in the round under way. A model that enters is to have one in this round, or in the next.
class RoundMembers {
 public:
  explicit RoundMembers(const TurnOptions& options) : options_(options) {}

  // `models`: all that have work now, ascending. New ones enter, the others leave; without a member left to have its turn, a new
  // round begins. True if the membership changed. Who had a turn, left and comes back is not due again in the same round: those that are
  // done soon and called again soon would keep it from ending, and whoever is never done from its next turn.
  bool update(std::span<const ModelId> models);
  // Its turn begins. REQUIRES: a member.
  void had_turn(ModelId model);

  bool is_due(ModelId model) const;  // still to have its turn in this round
  uint64_t round() const { return round_; }

 private:
  TurnOptions options_;
  std::map<ModelId, uint64_t> members_;  // and the round of their last turn, or of the one they may not enter any more
  std::set<ModelId> left_;               // that had their turn in this round
  uint64_t round_ = 1;
};

std::string to_string(const RoundPlan& plan);

}  // namespace shoal
