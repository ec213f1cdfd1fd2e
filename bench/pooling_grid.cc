// Where which scheduling policy wins, and by how much: production roles in the simulator over a grid of devices, models,
// deadlines, lengths, skews, bursts and loads.
//
//   pooling_grid [--seeds 1,2,3] [--apart 101,102] [--places 24] [--loads-each 3] [--devices 1] [--jobs 1]
//                [--policies token,request,static,paper] [--svg FILE] [--csv FILE] [--points]
//                [--again FILE] [--only 1003,101006] [--draws 1] [--redraw 0]
//                [--unlike sizes,lengths,deadlines,untold]
//
// --draws: runs of every point under each policy, with other arrivals and lengths each; a point's share is their mean. One run
// has some hundred answers, and of two policies that are as good one is then ahead by several times 0.01. --redraw: points where the
// first policy is behind by more than 0.01 are told by so many runs instead.
// --again: the points of an earlier --csv with the same seeds and places; of the policies only the first is run anew, which
// takes a tenth of the time; give the --draws of then. --only: of these places.
// --unlike: in what the models of a place differ, and places from the usual: Unlike in grid_design.h. Without, models are alike and clients
// ask for as many tokens as they get.
//
// Policies may be tuned on --seeds, never on --apart; the two are reported apart. Every draw of a point is one seeded run under
// each policy with the same requests, at a load that is a share of what the place carries with memory for all its models.
// Ctrl-C or SIGTERM ends it with what was measured so far. Exit 1: a run broke an invariant, or a flag is wrong.
#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdio>
#include <fstream>
#include <mutex>
#include <thread>

#include "CLI/CLI.hpp"
#include "bench/grid_design.h"
#include "bench/grid_report.h"

namespace {

using namespace shoal;

volatile std::sig_atomic_t stopped = 0;

struct Flags {
  std::vector<uint64_t> seeds = {1, 2, 3}, apart = {101, 102};
  std::vector<std::string> policies{std::begin(kPolicies), std::end(kPolicies)};
  uint32_t places = 24, loads_each = 3, devices = 1, jobs = 1, draws = 1, redraw = 0;
  std::vector<uint64_t> only;
  std::string svg, csv, again;
  bool points = false;
  std::vector<std::string> unlike_names;
  Unlike unlike;
};

struct Job {
  Place place;
  bool apart = false;
};

std::vector<Job> jobs_of(const Flags& flags) {
  std::vector<Job> jobs;
  for (const bool apart : {false, true}) {
    for (const uint64_t seed : apart ? flags.apart : flags.seeds) {
      for (Place& place : draw_places(seed, flags.places, flags.devices, flags.unlike)) {
        const bool wanted = flags.only.empty() || std::find(flags.only.begin(), flags.only.end(), place.seed) != flags.only.end();
        if (wanted) jobs.push_back({std::move(place), apart});
      }
    }
  }
  return jobs;
}

// Every place gets loads of its own, so that all of them are met.
std::vector<double> loads_of(const Place& place, uint32_t count) {
  std::vector<double> loads;
  constexpr size_t n = std::size(kLoads);
  for (uint32_t i = 0; i < count; ++i) loads.push_back(kLoads[(place.seed + i * n / count) % n]);
  return loads;
}

class Grid {
 public:
  Grid(const Flags& flags, const std::vector<KnownPoint>& known) : flags_(flags), known_(known), jobs_(jobs_of(flags)) {}

  GridResult run() {
    std::vector<std::thread> threads;
    for (uint32_t i = 0; i < flags_.jobs; ++i) threads.emplace_back([this] { work(); });
    for (std::thread& thread : threads) thread.join();
    result_.stopped = stopped != 0;
    return std::move(result_);
  }

 private:
  void work() {
    for (size_t i = next_++; i < jobs_.size() && !stopped; i = next_++) {
      const Job& job = jobs_[i];
      if (!flags_.again.empty()) {
        for (const KnownPoint& point : known_) {
          if (point.place_seed == job.place.seed && !stopped) measure_again(job, point);
        }
        continue;
      }
      const StatusOr<double> capacity = capacity_of(job.place);
      if (!capacity.ok()) {
        const std::lock_guard lock(mutex_);
        (capacity.status().code() == StatusCode::kFailedPrecondition ? result_.out_of_reach : result_.broken)
            .push_back(to_string(job.place) + ": " + std::string(capacity.status().message()));
        continue;
      }
      for (const double load : loads_of(job.place, flags_.loads_each)) {
        if (!stopped) measure(job, load, load * *capacity);
      }
      std::fprintf(stderr, "\r%zu of %zu places", i + 1, jobs_.size());
    }
  }

  void measure_again(const Job& job, const KnownPoint& known) {
    const StatusOr<PlaceScore> score = score_of(job.place, flags_.policies.front(), known.requests_per_second, flags_.draws);
    if (!score.ok()) return broke(score.status());
    GridPoint point{job.place, job.apart, known.load, known.requests_per_second, known.scores};
    point.scores.front() = *score;
    keep(std::move(point));
  }

  void measure(const Job& job, double load, double rate) {
    GridPoint point{job.place, job.apart, load, rate, {}};
    if (score_all(point, flags_.draws)) keep(std::move(point));
  }

  bool score_all(GridPoint& point, uint32_t draws) {
    point.scores.clear();
    for (const std::string& policy : flags_.policies) {
      StatusOr<PlaceScore> score = score_of(point.place, policy, point.requests_per_second, draws);
      if (!score.ok()) return broke(score.status()), false;
      point.scores.push_back(*std::move(score));
    }
    return true;
  }

  void keep(GridPoint point) {
    if (flags_.redraw > flags_.draws && point.gain() < -kAlike && !stopped && !score_all(point, flags_.redraw)) return;
    const std::lock_guard lock(mutex_);
    result_.points.push_back(std::move(point));
  }

  void broke(const Status& why) {
    const std::lock_guard lock(mutex_);
    result_.broken.push_back(std::string(why.message()));
  }

  const Flags& flags_;
  const std::vector<KnownPoint>& known_;
  const std::vector<Job> jobs_;
  std::atomic<size_t> next_{0};
  std::mutex mutex_;
  GridResult result_;
};

bool write(const std::string& path, const std::string& text) {
  if (path.empty()) return true;
  std::ofstream file(path);
  file << text;
  if (!file.flush()) std::fprintf(stderr, "could not write %s\n", path.c_str());
  return static_cast<bool>(file);
}

}  // namespace

int main(int argc, char** argv) {
  Flags flags;
  CLI::App app("Where which scheduling policy wins, and by how much (simulated)");
  app.add_option("--seeds", flags.seeds, "Seeds of the grid that policies may be tuned on")->delimiter(',');
  app.add_option("--apart", flags.apart, "Seeds that they are not tuned on, reported apart")->delimiter(',');
  app.add_option("--policies", flags.policies, "The first is compared with the best of the others")->delimiter(',')->check(CLI::IsMember(flags.policies))->expected(2, 4);
  app.add_option("--unlike", flags.unlike_names, "In what the models of a place differ, or that clients do not say how long answers will be")->delimiter(',')->check(CLI::IsMember(std::vector<std::string>(std::begin(kUnlike), std::end(kUnlike))));
  app.add_option("--places", flags.places, "Places of each seed")->check(CLI::Range(1u, 10'000u));
  app.add_option("--loads-each", flags.loads_each, "Loads at each place")->check(CLI::Range(1u, static_cast<uint32_t>(std::size(kLoads))));
  app.add_option("--devices", flags.devices, "Devices of each place")->check(CLI::Range(1u, 64u));
  app.add_option("--jobs", flags.jobs, "Places at once")->check(CLI::Range(1u, 256u));
  app.add_option("--draws", flags.draws, "Runs of every point, with other arrivals and lengths each")->check(CLI::Range(1u, 1'000u));
  app.add_option("--redraw", flags.redraw, "Runs of every point where the first policy is behind by more than 0.01 in --draws of them")->check(CLI::Range(0u, 1'000u));
  app.add_option("--svg", flags.svg, "Writes the picture there");
  app.add_option("--csv", flags.csv, "Writes every point there");
  app.add_option("--again", flags.again, "Points of an earlier --csv with these seeds and places; only the first policy is run")->check(CLI::ExistingFile);
  app.add_option("--only", flags.only, "Of these places")->delimiter(',');
  app.add_flag("--points", flags.points, "Prints every point");
  CLI11_PARSE(app, argc, argv);
  flags.unlike = Unlike::of(flags.unlike_names);
  for (const int signal : {SIGINT, SIGTERM}) std::signal(signal, [](int) { stopped = 1; });
  std::vector<KnownPoint> known;
  if (!flags.again.empty()) {
    StatusOr<std::vector<KnownPoint>> read = read_grid_csv(flags.again, flags.policies, flags.unlike);
    if (!read.ok()) {
      std::fprintf(stderr, "%s\n", std::string(read.status().message()).c_str());
      return 1;
    }
    known = *std::move(read);
  }
  GridResult result = Grid(flags, known).run();
  std::fputs("\n", stderr);
  std::fputs(grid_table(result, flags.policies, flags.points).c_str(), stdout);
  const bool written = write(flags.csv, grid_csv(result, flags.policies)) & write(flags.svg, grid_svg(result, flags.policies));
  return written && result.broken.empty() ? 0 : 1;
}
