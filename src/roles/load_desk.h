// The one load of weights of a node: what it is at, and what it cost. Those who perform it look here instead of keeping
// books of their own.
//
//   idle --make_room--> making room --begin--> loading --ended--> idle
//                                                 '--pack--> packing --packed--> idle
#pragma once

#include <cstdint>
#include <optional>
#include <variant>
#include <vector>

#include "base/ids.h"
#include "base/status.h"
#include "base/time.h"
#include "memory/page_pool.h"
#include "policy/estimator.h"

namespace shoal {

class LoadDesk {
 public:
  struct Idle {};
  // Others give up memory for this model; it is loaded when there is enough.
  struct MakingRoom {
    ModelId model;
  };
  struct Loading {
    ModelId model;
    TimePoint wanted_since{};   // by those whom it serves
    double copied = 1;          // share of its weights that were not there
    bool cancelled = false;     // called off; it ends in a moment
    Duration waited{0};         // time in which no step ran, or by which steps took longer
  };
  // It is on the device and may compute one step, and its load goes on.
  struct Packing {
    ModelId model;
    bool stepped = false;       // its next step comes sooner after the load than beside it
    bool cancelled = false;
    Status failed = OkStatus();  // its weights have to go, when no step of it is under way
    std::vector<PageSpan> whole = {};  // then; WeightsPacked
  };
  using State = std::variant<Idle, MakingRoom, Loading, Packing>;

  // `bytes_per_second`: believed until a load was measured.
  explicit LoadDesk(double bytes_per_second) : bytes_per_second_(bytes_per_second) {}

  const State& state() const { return state_; }
  const Loading* loading() const { return std::get_if<Loading>(&state_); }
  TimePoint began() const { return began_; }  // the load under way, or the last one
  const Packing* packing() const { return std::get_if<Packing>(&state_); }
  bool packing(ModelId model) const { return packing() != nullptr && packing()->model == model; }
  std::optional<ModelId> making_room() const;
  std::optional<ModelId> under_way() const;  // whose load is: loading or packing
  bool cancelled() const;                    // the one under way

  void make_room(ModelId model);             // REQUIRES: no load is under way
  void stop_making_room();                   // nothing happens if no room is being made
  void begin(ModelId model, TimePoint wanted_since, double copied, TimePoint now);  // REQUIRES: no load is under way
  void cancel();                             // REQUIRES: one is
  Loading end();                             // REQUIRES: loading
  void pack(ModelId model);                  // REQUIRES: it has just ended, well
  void fail_packing(const Status& why, std::vector<PageSpan> whole);  // REQUIRES: packing
  Packing end_packing();                     // REQUIRES: packing

  // ---- what it cost -----------------------------------------------------------------------------------------------------

  // Of one load, and of these the seconds that nothing hid.
  struct Cost {
    ModelId model;
    double seconds = 0;
    double waited_seconds = 0;
    double copied = 1;          // share of its weights
  };
  // `beside`: another step is in flight already.
  void step_begun(ModelId model, bool beside, TimePoint now);
  void step_ended(TimePoint now) { idle_since_ = now; }
  bool step_beside_load() const { return step_beside_load_; }        // for a part of the steps under way, or the last one
  bool step_beside_packing() const { return step_beside_packing_; }
  // The step that ended took so much longer than it would have alone (either sign: a prediction that is off is off both
  // ways), which is a cost of the load beside it: of the one that goes on, or of the one that ended meanwhile, returned.
  std::optional<Cost> charge(double extra_seconds);
  // What a load cost that has just ended well, and copied what it was to; nothing if the step under way will tell.
  std::optional<Cost> measure(const Loading& ended, uint64_t weight_bytes, bool stepping, TimePoint now);
  Cost measure_packed(ModelId model, uint64_t weight_bytes, double copied, TimePoint now);  // all of it was waited for
  double seconds_for(uint64_t weight_bytes) const;
  // Of a switch to a model that copies such a share of its weights: as measured of it, or as long as its load takes.
  double switch_seconds(const ModelEstimator& costs, uint64_t weight_bytes, double copied) const { return costs.switch_seconds(seconds_for(weight_bytes), copied); }

 private:
  void observe(double seconds, uint64_t bytes);

  State state_;
  const double bytes_per_second_;
  MovingMean seconds_per_byte_;
  TimePoint began_{};                 // the load under way
  std::optional<Cost> ended_;         // within the step under way
  TimePoint idle_since_{};            // no step since
  bool step_beside_load_ = false;
  bool step_beside_packing_ = false;
};

}  // namespace shoal
