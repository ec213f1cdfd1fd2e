// One model in a rehearsal: its requests as a fluid in cohorts, and what becomes of them. Pure.
#pragma once

#include <algorithm>
#include <limits>

#include "policy/rehearsal.h"

namespace shoal {

class RehearsalActor {
 public:
  static constexpr double kTiny = 1e-9;
  static constexpr double kNoLimit = std::numeric_limits<double>::infinity();
  static constexpr double kPaced = 8;        // steps that the pace before it counts as
  static constexpr double kSlotsOfTtft = 3;  // so often arrivals are looked at within the time of a first token

  // `passes_over`: those that are hopeless, as an engine does where all models are on the device.
  RehearsalActor(const RehearsedModel& facts, double horizon, bool passes_over = false) : facts_(&facts), horizon_(horizon), cohorts_(facts.cohorts), spent_(facts.spent_seconds), paced_steps_(kPaced), paced_wall_(kPaced * facts.pace_seconds), here_(facts.resident), passes_over_(passes_over), passed_over_{passes_over ? facts.passed_over : 0} { count(); }

  const RehearsedModel& facts() const { return *facts_; }
  bool here() const { return here_; }
  double switch_seconds() const { return facts_->switch_seconds * dilation_; }
  double quota(double stretch) const { return facts_->quota_seconds * stretch * dilation_; }
  // Turns are no shorter than that: of shorter ones several are one, switches included.
  void dilate(double turn_min, double stretch) {
    dilation_ = std::max(1.0, turn_min / std::max(facts_->switch_seconds + facts_->quota_seconds * stretch, kTiny));
  }
  double spent() const { return spent_; }
  double lost() const { return lost_ * facts_->weight; }
  double ahead() const { return ahead_ * facts_->weight; }
  void come() { here_ = true, closed_ = false, spent_ = 0; }
  bool closed() const { return closed_; }
  // Begins no answers but those that wait now.
  void close(bool closed, double now);
  static bool rare(const RehearsedModel& m) { return m.arrivals * m.ttft < kSlotsOfTtft; }  // its requests
  // If they are rare they come one by one and not as a fluid, in each phase at other times.
  void come_one_by_one(uint32_t phase) { phase_ = phase, one_by_one_ = rare(*facts_); }
  // It is closed, and all that it was to begin has ended.
  bool done(double now) const { return tail_ <= kTiny && decoding_ <= kTiny && std::min(to_begin_, waiting(now)) <= kTiny; }
  void go() { here_ = false; }

  // What came until then and can be on time; of a long while in parts. What cannot be any more is forgotten.
  void arrive_until(double now);

  double decoding() const { return decoding_; }
  double in_step() const { return std::max(0.0, decoding_ - passed_over_.requests); }  // of those

  // Of the device, that all that wait take.
  double waiting_seconds() const { return waiting_ * (facts_->prompt_seconds + facts_->answer_tokens * facts_->step_each); }
  Chance chance(const Cohort& c, double now) const {
    return shoal::chance(c.left, now + c.prompt_seconds + next_step_, next_step_, behind(c), c.due, facts_->tbt, waiting_seconds());
  }
  double behind(const Cohort& c) const { return falls_behind(c.left, paced_wall_ / paced_steps_, facts_->tbt, facts_->ttft); }
  bool worth(const Cohort& c, double now) const { return chance(c, now) != Chance::kNone; }

  // When the first token is due that is promising at `now`, of those that decode and of those that would begin next; kNoLimit: nothing is.
  double due(double now) const {
    double decoding = kNoLimit, whole = kNoLimit, part = kNoLimit;
    for (const Cohort& c : cohorts_) {
      const Chance has = chance(c, now);
      double& first = c.prompt_seconds <= 0 ? decoding : has == Chance::kWhole ? whole : part;
      if (has != Chance::kNone) first = std::min(first, c.due);
    }
    return std::min(decoding, whole < kNoLimit ? whole : part);
  }

  // Seconds of the device that would finish everything promising; of one that is closed, all that began and is to begin.
  double work(double now) const;

  double kv_pages() const { return facts_->kv_pages * decoding(); }

  // When the last of the next tokens of those that decode is due; -infinity: none does.
  double last_due() const;

  // Of those that decode, the ones that are due last begin anew, for so many pages of KV: what came free.
  double give_up(double pages);

  // Computes for `seconds` of the device's time within [from, from + wall), with so many pages for more KV, and KV of so much of those that
  // decode on the device, in turn: weighted tokens on time.
  double compute(double from, double wall, double seconds, double pages, double active = 1);

  // The horizon is there: what was due until then and was not given.
  void end();

 private:
  void count();
  // As engine/passing_over.h, for the time of one compute(), of which this model has each `sharing`-th second.
  void pass_over(double now, double sharing);
  void tidy() {
    cohorts_.remove_empty();
    count();
  }

  // Who came within [from, to): at equal distances, and the first at a moment of its model's and the phase's own.
  Cohort between(double from, double to) const;

  // Those that have not begun and are worth it.
  double waiting(double now) const;

  // Of so many tokens that come one after the other, how many are due within the horizon.
  double within(double tokens, double due) const { return std::clamp((horizon_ - due) / facts_->tbt + 1, 0.0, tokens); }

  // Steps that take prompts along, in seconds each, and the share of them that prompts have: with so many that decode, and half of those
  // that begin, for these decode beside the prompts of the others.
  struct Mix {
    double step = 0, prompts = 1;
  };
  Mix beside_prompts(double decoding, double begin) const;

  // How many may begin within `seconds` in so many places and in those of answers that end meanwhile: short ones make room for several.
  double turnover(double decoding, double places, double seconds) const;
  double prompts(double from, double wall, double budget, double room, double& on_time);

  double step(double sequences) const { return facts_->step_seconds(std::min(sequences, facts_->sequences_max)); }

  double decodes(Cohorts& cohorts, double from, double wall, double steps);

  const RehearsedModel* facts_;
  double horizon_, dilation_ = 1;
  Cohorts cohorts_;
  double decoding_ = 0, waiting_ = 0, next_step_ = 0;  // sequences that decode, and that do not yet, and seconds of a step with one more
  double arrived_ = 0, spent_ = 0, lost_ = 0, ahead_ = 0;
  double paced_steps_ = 0, paced_wall_ = 0;  // of late, and the seconds that they took with what was between them
  bool here_ = false, closed_ = false, one_by_one_ = false, passes_over_;
  uint32_t phase_ = 0;
  double to_begin_ = 0;  // while it is closed: requests
  double tail_ = 0;      // seconds alone that its last answers take once the others have ended
  // Of those that decode.
  struct PassedOver {
    double requests = 0, since = 0, step = 0, tbt = 0;
    bool would(const Cohort& c) const { return c.prompt_seconds <= 0 && hopeless(c.left, since + step, step, c.due, tbt); }
    bool has(const Cohort& c) const { return requests > 0 && would(c); }
  } passed_over_;
  Cohorts begun_;
};

}  // namespace shoal
