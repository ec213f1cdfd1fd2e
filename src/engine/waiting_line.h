// The sequences of an engine that wait to be admitted: who can still be on time, fairly by whose they are and of each payer those first
// that can be on time with all that they answer; and behind them all who cannot.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/status.h"
#include "base/time.h"
#include "engine/fair_queue.h"
#include "engine/passing_over.h"
#include "engine/sequence.h"
#include "policy/estimator.h"
#include "policy/slo.h"

namespace shoal {

// What is expected of the requests of an engine, to tell who can still be on time.
struct Prospects {
  SloTarget slo;               // a request may have a stricter one
  double step_seconds = 0;     // between two tokens of an answer, if it goes on
  PromptCost prompts;
  double answer_tokens = 0;    // of an answer, in the mean; 0: unknown, and everybody is on time
  double token_seconds = 0;    // that one of them more makes a step longer
  double pace_seconds = 0;     // between two, as it was of late, with the prompts and the other models between them
  double filled = 0;           // share of answers that end only because they are as long as they may be,
  double filled_tokens = 0;    // and how long those are in the mean
  bool fair = false;           // by when counts for nothing: first come, first served, and nobody is given up

  // Tokens that an answer of so many, of at most so many, still has, as far as that can be known: for whoever waits or runs, where none
  // is to stand behind others because it may be long.
  double left(uint64_t given, uint64_t most) const;
  // And of all together, in the mean: where clients ask for as many tokens as they get, that is what they ask for.
  double left_in_all(uint64_t given, uint64_t most) const;
  // Seconds from now until the next token of `s` is due.
  double due(const Sequence& s, TimePoint now) const;
  // Of what is missing of its prompt before its next token.
  double prompt_seconds(const Sequence& s) const;
  bool hopeless(const Sequence& s, TimePoint now) const;
  // What can still become of the answer, if it goes on at once, where so many wait; of one that was begun before it is not kPart.
  Chance chance(const Sequence& s, TimePoint now, size_t waiting) const;
};

class WaitingLine {
 public:
  static constexpr size_t kSeenMax = 64;  // looked at for a step: enough to fill any, independent of the line's length

  // Of `most` requests. One that cannot be on time any more and has waited for `late_wait` is first in each `late_every`-th step.
  WaitingLine(uint32_t most, Duration late_wait, uint32_t late_every) : most_(most), late_wait_(late_wait), late_every_(late_every) {}

  // ResourceExhausted: the line is full of those that can be on time, or this payer's share of it is.
  Status may_join(const Payer& payer) const;
  // Who is to leave a line that is too long, for a place in it is for one that can be on time: the last of those that cannot and have not begun.
  std::optional<RequestId> surplus() const;
  Status full() const;  // ResourceExhausted: what those hear that may not join, or are to leave
  void add(Sequence& s) { on_time_.add(s); }
  void remove(const Sequence& s);  // no error if it is not there
  // It is admitted. REQUIRES: it has just been removed, and is not marked as admitted before unless it was.
  void admitted(const Sequence& s) { on_time_.begun(s, answer_tokens()); }
  // What can still become of one that waits, or runs.
  Chance chance(const Sequence& s, TimePoint now) const { return prospects_.chance(s, now, on_time_.size()); }
  // By what is expected from now on: who can be on time in part stands behind his payer's others, and who cannot is late, and stands behind
  // all who can. Once prospects are `fair` all stand where they came again. Looked at are the first of each payer, and kSeenMax in all each kLookClosely.
  void sort_out(const Prospects& prospects, TimePoint now);
  // Late ones are admitted only while this says so (as it does at first).
  void admit_late(bool admitted) { admit_late_ = admitted; }
  // They are before all others, and admitted.
  void late_first(bool first) { late_first_ = first; }

  // Who may be admitted in this step, in order, `most` at most.
  std::vector<const Sequence*> next(uint64_t step, TimePoint now, size_t most) const;
  bool any_next() const { return on_time_.size() > 0 || ((admit_late_ || late_first_) && !late_.empty()); }
  // visit(sequence): those that can be on time, the first ones.
  template <typename Visit>
  void for_each_next(Visit visit) const {
    for (const Sequence* s : on_time_.first(kSeenMax, answer_tokens())) visit(*s);
  }
  // visit(sequence, number of those like it): of all that can be on time, kSeenMax at most.
  template <typename Visit>
  void for_each_kind(Visit visit) const {
    on_time_.for_each_kind(kSeenMax, visit);
  }

  size_t size() const { return on_time_.size() + late_.size(); }
  size_t late() const { return late_.size(); }
  // Of those that can be on time: how many are this payer's, and about how many begin before one more of its.
  size_t of(const Payer& payer) const { return on_time_.of(payer); }
  size_t ahead_of(const Payer& payer) const { return on_time_.ahead_of(payer); }
  // Likewise: the arrival of the first, as it would begin; and how many of the first ones came until then.
  TimePoint first_arrival() const;
  uint32_t came_by(TimePoint then) const;
  const Prospects& prospects() const { return prospects_; }
  PassingOver& passing_over() { return passing_over_; }
  void check() const;

 private:
  using Key = std::pair<int64_t, uint64_t>;  // (-priority, order)
  static Key key(const Sequence& s) { return {-int64_t{s.request->priority}, s.order}; }

  double answer_tokens() const { return prospects_.answer_tokens > 0 ? prospects_.answer_tokens : kAnswerTokens; }

  static constexpr double kAnswerTokens = 128;  // believed while none has ended
  static constexpr Duration kLookClosely = std::chrono::milliseconds(100);
  const uint32_t most_;
  const Duration late_wait_;
  const uint32_t late_every_;
  FairQueue on_time_;
  std::map<Key, Sequence*> late_;
  Prospects prospects_;
  TimePoint next_close_look_ = TimePoint::min();
  bool admit_late_ = true, late_first_ = false;
  PassingOver passing_over_{late_every_};
};

}  // namespace shoal
