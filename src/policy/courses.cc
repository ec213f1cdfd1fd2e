#include "policy/courses.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace shoal {
namespace {

// Courses against each other: the one that stays unless another is enough better.
class Contest {
 public:
  Contest(std::span<const RehearsedModel> models, const RehearsedDevice& device, double horizon)
      : models_(models), here_first_(models.begin(), models.end()), device_(device), horizon_(horizon) {
    put_here_first(here_first_);
  }

  Rehearsed of(const Course& course) {
    const auto known = std::find_if(seen_.begin(), seen_.end(), [&](const auto& s) { return s.first == course; });
    return known != seen_.end() ? known->second : seen_.emplace_back(course, rehearse(course.here ? here_first_ : models_, device_, course, horizon_)).second;
  }
  // The best of those seen that serve so many models at least, if what is given ahead counts as so much of what is on time.
  std::pair<Course, Rehearsed> best(uint32_t served_min, double ahead_counts) const {
    std::pair<Course, Rehearsed> best{};
    for (const auto& seen : seen_) {
      if (seen.first.served >= served_min && (best.first.served == 0 || seen.second.worth(ahead_counts) > best.second.worth(ahead_counts))) best = seen;
    }
    return best;
  }

 private:
  std::span<const RehearsedModel> models_;
  std::vector<RehearsedModel> here_first_;
  const RehearsedDevice& device_;
  const double horizon_;
  std::vector<std::pair<Course, Rehearsed>> seen_;
};

bool goes_first(const RehearsedModel& m) { return m.first || m.stays || m.here; }

bool keeps(const Rehearsed& everybody, const CourseOptions& options) { return everybody.lost <= options.loss_max * everybody.on_time; }

}  // namespace

bool keeps_everybody(std::span<const RehearsedModel> models, const RehearsedDevice& device, double horizon, const CourseOptions& options) {
  return keeps(rehearse(models, device, {static_cast<uint32_t>(models.size()), 1}, horizon), options);
}

void put_here_first(std::span<RehearsedModel> models) { std::stable_partition(models.begin(), models.end(), goes_first); }

Course best_course(std::span<const RehearsedModel> models, const RehearsedDevice& device, double horizon, const Course& kept, const CourseOptions& options) {
  const auto count = static_cast<uint32_t>(models.size());
  const uint32_t rooms = device.rooms;
  const Course everybody{count, 1};
  const bool turns = kept.served > rooms, others_first = !std::is_partitioned(models.begin(), models.end(), goes_first);
  const Course before = kept.served == 0 ? everybody : Course{std::min(kept.served, count), turns ? kept.stretch : 1, turns && kept.ends, !turns && others_first};
  Contest contest(models, device, horizon);
  const Rehearsed wide = contest.of(everybody);
  if (keeps(wide, options)) return everybody;
  contest.of(before);
  for (uint32_t served = std::min(rooms, count); served > 0; served -= 1 + served / 4) contest.of({served, 1}), contest.of({served, 1, false, others_first});
  for (uint32_t served = rooms + 1, more = 1; served <= count; served = std::min(count, rooms + (more *= 2))) {
    for (const Course& course : {Course{served, 1}, Course{served, 0, true}, Course{served, 4, true}, Course{served, Course::kUntilDone}}) contest.of(course);
    if (served == count) break;
  }
  // The rest only for as many as one of these did best with.
  if (const uint32_t served = contest.best(rooms + 1, options.ahead_min).first.served; served > 0) {
    for (const Course& course : {Course{served, 2}, Course{served, 4}, Course{served, 8}, Course{served, 1, true}}) contest.of(course);
  }
  double share = 0;
  for (const RehearsedModel& m : models) share += load(m, horizon);
  constexpr double kIdle = 0.1, kShort = 0.5;
  const double idle = contest.best(1, options.ahead_min).second.idle;
  const double ahead = std::clamp(std::min((share - 1) / kShort, 1 - idle / kIdle), options.ahead_min, options.ahead_max);
  const Course best = contest.best(1, ahead).first;
  const double most = contest.of(best).worth(ahead), stays = contest.of(before).worth(ahead);
  const bool better = most > stays * (1 + options.gain_min);
  const Course chosen = wide.worth(ahead) >= (better ? most : stays) * (1 - options.loss_max) ? everybody : better ? best : before;
  // If nobody came until the end, it is those on the device that were rehearsed: it tells nothing of what turns would bring.
  return chosen.served > rooms && contest.of(chosen).switches == 0 ? Course{rooms, 1, false, others_first} : chosen;
}

}  // namespace shoal
