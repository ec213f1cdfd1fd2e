// Who has turns on the device while more models have work than it holds: rehearses (policy/rehearsal.h) with what the node
// knows, and says it to the models.
#pragma once

#include <vector>

#include "policy/courses.h"
#include "roles/catalogue.h"
#include "roles/load_desk.h"

namespace shoal {

// The longest that a model with requests has no turn, where so many are away at once and a switch to one takes so long: those that were
// in the dark for `dark_max`, or in proportion longer where a visit takes more than 1.5 s, are favoured one after the other, the one first that
// was for longest. The prompt of its first request comes on top. REQUIRES: away > 0.
double dark_seconds_most(const TurnOptions& turns, uint32_t away, double switch_seconds);

class ServedSet {
 public:
  // All outlive this.
  ServedSet(const NodeConfig& config, Catalogue& catalogue, const LoadDesk& loads) : config_(config), catalogue_(catalogue), loads_(loads) {}

  // What turns aim at.
  SloTarget slo(const HostedModel& hosted) const;
  // What is expected of a model's requests.
  Prospects prospects(const HostedModel& hosted) const;
  // Before what is below, and before prospects() are asked for: whether most models with work said by when a first token is due.
  void note_said(TimePoint now);
  // To be called with every change; decides anew now and then. `contended`: models with work do not all fit the device, or
  // cannot all be on time.
  void update(bool contended, TimePoint now);
  // With the next change: somebody who is away is asked for, and a switch to it may not be worth it.
  void look_anew() { next_ = {}; }
  TimePoint next() const { return next_; }  // when it decides anew
  void came(const HostedModel& hosted, TimePoint now);  // a request for it
  // Whether the turn of one that said by when, `slack` from now, comes before those of models that did not: where most did not, if it is on time so,
  // and not twice one after the other.
  bool keeps_promise(const HostedModel& hosted, Duration slack) const;
  const Course& course() const { return course_; }
  std::optional<ModelId> favoured() const { return favoured_ ? std::optional(favoured_->model) : std::nullopt; }  // who was in the dark for too long

 private:
  // Of one that is in the dark.
  struct VisitTerms {
    bool unsaid;                            // nobody said by when: turns aim at some loads
    double switch_seconds;                  // to it, as expected
    double dark_seconds;                    // longer is too long
    double stay_seconds, stay_seconds_max;  // on the device: until those who asked before have their answers
    double others, others_idle;             // times as long as it may take, or took, have the others then
    double seconds_max() const { return stay_seconds_max + 2 * switch_seconds; }  // there and back
  };
  VisitTerms visit_of(const HostedModel& hosted) const;
  // In its line, if nobody said by when; only while there is a visit.
  void late_first(bool visited);
  double switch_to(const HostedModel& hosted) const;  // in seconds
  double quota(const HostedModel& hosted) const;      // likewise, of its turn, as planned last
  double returning_share() const;
  void serve_all();
  // Where most did not say by when, nobody stands behind those of his model who could be on time instead: while turns cannot keep everybody on time, one model
  // after the other serves who has come, first come, first served, and goes when they have their answers: after two switches at least, after
  // its part of `dark_max`, or eight, at most; or once it had four, for one that keeps_promise() only now.
  void take_turns();
  void note_load(TimePoint now);
  void note_dark(TimePoint now);
  void note_idle(TimePoint now);
  template <typename Whether>
  const HostedModel* longest_dark(Whether&& whether) const;
  const HostedModel* longest_dark_too_long(TimePoint now) const;  // of those that said by when, or of the others
  std::vector<ModelId> those_here() const;
  bool stuck() const;
  bool idle() const;
  bool idle_long_enough(const std::vector<RehearsedModel>& models, size_t which) const;
  std::vector<RehearsedModel> models_in_order(double horizon, TimePoint now) const;
  RehearsedModel rehearsed(const HostedModel& hosted, double returning_share, TimePoint now) const;
  RehearsedDevice device(const std::vector<RehearsedModel>& models) const;
  double horizon() const;
  void update_visits(TimePoint now);  // there are none while turns serve all
  // Who was in the dark for too long comes first, one after the other, and stays as its VisitTerms say, or until it has no work. Where a `ttft`
  // was said that is for as long as a switch to it takes, or half a second. With the switch to it and the one after it that is a visit. The next
  // such one comes once the others had 39 times as long; or 19 times as long as it took, while they have nothing to do.
  // Where nobody said by when a first token is due, more than `dark_max` or six switches in the dark are too long. Until those who asked before it
  // was favoured have their answers it stays, and they are before all others in its line: for three switches at least, for
  // `dark_max` or eight at most. The others have half as long as that took, or, if that is more, as many times as long as models that said by
  // when are more. Visits of those wait for none of these, nor these for them.
  void favour(TimePoint now);
  // Of those that cannot be on time, the one that waits longest is let in once the device was idle for as long as its visit takes, or ten
  // seconds. Not where others come meanwhile: not for twice `dark_max` from when one came for a model that is here, or made room for who was
  // let in, while somebody else waited.
  void let_in(TimePoint now);
  // On the device, but not as a guest; or away for the guest's sake.
  bool at_home(const HostedModel& hosted) const;
  bool hosts_are_back() const;

  const NodeConfig& config_;
  Catalogue& catalogue_;
  const LoadDesk& loads_;
  size_t said_ = 0, unsaid_ = 0;  // of the models with work
  double most_ = 0;               // models by which the latter were more of late
  TimePoint noted_{};
  bool fair_ = false;             // most of them did not say by when, and none comes before another
  bool said_next_ = false;        // the last step was of one that did not
  Course course_;
  TimePoint next_{};
  TimePoint next_expected_{};        // when lengths of answers are estimated anew
  TimePoint next_course_{};  // when it rehearses anew
  double slower_ = 1;  // than expected, so many times, is the load under way so far: a disk that nobody has measured yet condemns nobody
  struct Favoured {
    ModelId model;
    TimePoint since, here;  // favoured, and on the device
    VisitTerms terms;       // as of then
  };
  std::optional<Favoured> favoured_;         // was in the dark too long
  struct NextVisit {
    TimePoint busy{}, idle{};  // not before, and where the others have nothing to do
  };
  NextVisit next_visits_[2];   // of one that said by when, and of one that did not
  TimePoint hosts_until_{};  // those who were there before a guest come back by then
  struct LetIn {
    ModelId model;
    std::vector<ModelId> hosts;  // on the device when it was
  };
  std::optional<LetIn> let_in_;              // while it has work
  std::optional<TimePoint> came_meanwhile_;  // somebody, last
  TimePoint idle_since_ = kForever;
  std::optional<std::vector<ModelId>> hosts_;  // while there is a guest, on the device only since it was favoured: who were there before, and come back
};

}  // namespace shoal
