#include "bench/grid_design.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>
#include <utility>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/rng.h"
#include "roles/served_set.h"
#include "sim/planner.h"
#include "sim/workloads.h"
#include "sim/world.h"

namespace shoal {
namespace {

constexpr double kGiB = 1073741824.0;
constexpr double kRequests = 250, kSecondsMost = 100'000;  // of a run, if it is not to take longer

// 8-bit weights, for processors and small devices.
const ModelShape kSmall[] = {{"0.3b", 0.33e9, static_cast<uint64_t>(0.35 * kGiB), 24 << 10, 16384},
                             {"0.6b", 0.6e9, static_cast<uint64_t>(0.64 * kGiB), 56 << 10, 16384},
                             {"1.1b", 1.1e9, static_cast<uint64_t>(1.17 * kGiB), 22 << 10, 16384}};
const ModelShape kMiddle[] = {{"1.5b", 1.54e9, static_cast<uint64_t>(2.9 * kGiB), 28 << 10, 16384},
                              {"3b", 3.1e9, static_cast<uint64_t>(5.8 * kGiB), 36 << 10, 16384},
                              {"7b", 7.6e9, static_cast<uint64_t>(14.5 * kGiB), 56 << 10, 16384}};

struct Objective {
  const char* name;
  SloTarget slo;
};
const Objective kObjectives[] = {{"strict", {std::chrono::seconds(1), std::chrono::milliseconds(40)}},
                                 {"normal", {std::chrono::seconds(10), std::chrono::milliseconds(100)}},
                                 {"lax", {std::chrono::seconds(30), std::chrono::milliseconds(250)}}};
constexpr const char* kDevices[] = {"A10", "A100", "H20", "H800", "cpu"};
constexpr uint32_t kModels[] = {2, 4, 8, 16, 40, 100};
constexpr uint32_t kRooms[] = {1, 2, 3, 6};
constexpr double kLoadFactors[] = {0.2, 1, 3};
constexpr double kOutputs[] = {16, 32, 64, 128, 256, 512, 1000, 2000};
constexpr double kInputs[] = {30, 100, 300, 1000, 4000, 12000};
constexpr double kZipfs[] = {0, 0.5, 1, 1.5};
constexpr double kCvs[] = {1, 2, 4, 8};
// Of the means, where lengths are unlike: by the model's id, so that neither goes with the size or the objective.
constexpr double kInputTimes[] = {1, 2, 0.5, 1, 0.5, 2, 1};
constexpr double kOutputTimes[] = {1, 0.25, 4, 0.5, 2};

// Deals the values of one dimension to `count` places: each as often as any other, in an order of its own.
class Dealer {
 public:
  Dealer(Rng& rng, uint32_t count) : order_(count) {
    std::iota(order_.begin(), order_.end(), 0u);
    for (size_t i = order_.size(); i > 1; --i) std::swap(order_[i - 1], order_[rng.below(i)]);
  }
  template <typename T, size_t n>
  const T& of(const T (&values)[n], size_t place) const {
    return values[size_t{order_[place]} * n / order_.size()];
  }

 private:
  std::vector<uint32_t> order_;
};

// Weights of so many models of the place in the mean, but of its largest one at least.
double weights_of(const Place& place, uint32_t count) {
  double sum = 0, most = 0;
  for (const PlaceModel& model : place.of_model) {
    const auto bytes = static_cast<double>(model.shape->weight_bytes);
    sum += bytes, most = std::max(most, bytes);
  }
  return std::max(most, count * sum / place.models);
}

// Weights for `rooms` models, KV as much again as one of them, and one answer of full length at least.
double bytes_for(const Place& place, uint32_t rooms) {
  double kv = 1.0 * kGiB;
  for (const PlaceModel& model : place.of_model) {
    kv = std::max({kv, 0.8 * static_cast<double>(model.shape->weight_bytes), 1.1 * 16'384 * static_cast<double>(model.shape->kv_bytes_per_token)});
  }
  return weights_of(place, rooms) + kv;
}

void apply_policy(const std::string& policy, ClusterSpec& spec) {
  if (policy == "request") spec.scheduling = Scheduling::kRequest;
  if (policy == "static") spec.scheduling = Scheduling::kStatic;
  if (policy != "paper") return;
  spec.turns = TurnOptions::paper();
  if (const uint32_t nodes = spec.devices.front().nodes(); nodes > 1) spec.prefill = (3 * nodes + 4) / 8;
}

ClusterSpec cluster_of(const Place& place, const std::string& policy, bool for_all) {
  ClusterSpec spec;
  spec.devices = {{place.hardware, place.devices, 1}};
  for (const PlaceModel& model : place.of_model) spec.models.push_back(model.shape);
  spec.memory_share = bytes_for(place, for_all ? place.models : place.rooms) / place.hardware->memory_bytes;
  spec.host_bytes = 64 * kGiB;
  spec.load_bytes_per_second = place.load_factor * place.hardware->link_bytes_per_second;
  spec.limits = {2048, 256, 256, true};
  apply_policy(policy, spec);
  return spec;
}

double ttft_most(const Place& place) {
  double most = 0;
  for (const PlaceModel& model : place.of_model) most = std::max(most, to_seconds(model.slo.ttft));
  return most;
}

double seconds_alone(const Place& place) {  // of a request in a batch of eight, about
  const StepCost cost = roofline(*place.of_model.front().shape, *place.hardware);
  const double n = place.input_mean;
  return cost.prefill_seconds + cost.prefill_token_seconds * n + place.output_mean * cost.decodes_seconds(8, 8 * (n + place.output_mean / 2)) / 8;
}

}  // namespace

Unlike Unlike::of(const std::vector<std::string>& names) {
  const auto has = [&](const char* name) { return std::find(names.begin(), names.end(), name) != names.end(); };
  return {has(kUnlike[0]), has(kUnlike[1]), has(kUnlike[2]), has(kUnlike[3])};
}

std::string Unlike::to_string(const char* between) const {
  std::vector<const char*> names;
  const bool fields[] = {sizes, lengths, deadlines, untold};
  for (size_t i = 0; i < std::size(fields); ++i) {
    if (fields[i]) names.push_back(kUnlike[i]);
  }
  return absl::StrJoin(names, between);
}

std::string to_string(const Place& p) {
  const std::string unlike = Unlike{p.unlike.sizes, p.unlike.lengths, p.unlike.deadlines}.to_string(" and ");
  return absl::StrFormat("%s%s, %d of %d models%s, loads x%g, %s, %g -> %g tokens%s, Zipf %g, CV %g", p.devices > 1 ? absl::StrFormat("%dx", p.devices) : "",
                         p.hardware->name, p.rooms, p.models, unlike.empty() ? "" : " of unlike " + unlike, p.load_factor, p.strictness, p.input_mean, p.output_mean, p.unlike.untold ? " (untold)" : "", p.zipf, p.cv);
}

std::vector<Place> draw_places(uint64_t seed, uint32_t count, uint32_t devices, const Unlike& unlike) {
  Rng rng(seed);
  const auto dealer = [&] { return Dealer(rng, count); };
  const Dealer device = dealer(), models = dealer(), rooms = dealer(), load = dealer(), objective = dealer(), output = dealer(), input = dealer(), zipf = dealer(),
               cv = dealer(), shape = dealer();
  std::vector<Place> places;
  for (uint32_t i = 0; i < count; ++i) {
    Place p;
    p.seed = seed * 1000 + i;
    p.hardware = find_hardware(device.of(kDevices, i));
    p.devices = devices;
    p.models = models.of(kModels, i);
    const bool small = p.hardware->name == "cpu";
    const auto& shapes = small ? kSmall : kMiddle;
    const size_t first = &shape.of(shapes, i) - shapes, slo = &objective.of(kObjectives, i) - kObjectives;
    p.unlike = unlike;
    for (uint32_t m = 0; m < p.models; ++m) {
      const size_t size = unlike.sizes ? m : 0, deadline = unlike.deadlines ? m + m / 3 : 0, length = unlike.lengths ? m : 0;  // m / 3: not by size
      p.of_model.push_back({&shapes[(first + size) % std::size(shapes)], kObjectives[(slo + deadline) % std::size(kObjectives)].slo,
                            kInputTimes[length % std::size(kInputTimes)], kOutputTimes[length % std::size(kOutputTimes)]});
    }
    p.rooms = std::min(rooms.of(kRooms, i), p.models - 1);
    while (p.rooms > 1 && bytes_for(p, p.rooms) > 0.95 * p.hardware->memory_bytes) --p.rooms;
    p.load_factor = load.of(kLoadFactors, i);
    p.strictness = kObjectives[slo].name;
    p.output_mean = output.of(kOutputs, i);
    p.input_mean = input.of(kInputs, i);
    p.zipf = zipf.of(kZipfs, i);
    p.cv = cv.of(kCvs, i);
    places.push_back(std::move(p));
  }
  return places;
}

StatusOr<WorldSetup> make_world(const Place& place, const std::string& policy, double requests_per_second, bool for_all, uint32_t draw) {
  constexpr uint64_t kApart = 1'000'000'007;  // of the seeds of places
  WorldSetup setup;
  setup.seed = place.seed + draw * kApart;
  setup.requests_max = 1'000'000;
  setup.place_by_load = policy == "paper";
  if (policy == "paper") setup.balance_interval = Duration::max();
  ASSIGN_OR_RETURN(setup.nodes, make_nodes(cluster_of(place, policy, for_all)));
  for (NodeSpec& node : setup.nodes) {
    for (NodeModel& model : node.config.models) model.pooling.slo = place.of_model[model.model.value].slo;
  }
  SyntheticSpec load;
  load.requests_per_second = requests_per_second;
  load.cv = place.cv;
  load.zipf = place.zipf;
  load.seed = setup.seed;
  load.input_mean = place.input_mean;
  load.output_mean = place.output_mean;
  for (const PlaceModel& model : place.of_model) {
    load.input_times.push_back(model.input_times);
    load.output_times.push_back(model.output_times);
  }
  load.spread = 0.6;
  load.told = !place.unlike.untold;
  // Long enough for a few hundred answers, and for lateness to grow beyond what the first token may take. What several devices
  // get is more in as long a time.
  load.duration_seconds = std::clamp(kRequests / requests_per_second, 4 * ttft_most(place) + 30.0 / place.devices, kSecondsMost);
  setup.workload = std::make_unique<SyntheticWorkload>(load, model_lengths(setup.nodes));
  return setup;
}

StatusOr<PlaceScore> score_of(const Place& place, const std::string& policy, double requests_per_second, uint32_t draws, bool for_all) {
  PlaceScore score;
  for (uint32_t draw = 0; draw < draws; ++draw) {
    ASSIGN_OR_RETURN(WorldSetup setup, make_world(place, policy, requests_per_second, for_all, draw));
    const Outcome outcome = World(std::move(setup)).run();
    if (!outcome.violations.empty()) return absl::InternalError(policy + " at " + to_string(place) + ": " + outcome.violations.front());
    score.of_draws.push_back(outcome.attainment.of_tokens());
    score.on_time += score.of_draws.back() / draws;
    for (const ModelOutcome& model : outcome.models) score.silent_s = std::max(score.silent_s, model.silent_seconds_max);
  }
  return score;
}

double silence_bound(const Place& place) {
  const ClusterSpec spec = cluster_of(place, "token", false);
  const double load = spec.load_seconds + weights_of(place, 1) / spec.load_bytes_per_second;
  return dark_seconds_most(spec.turns, place.models - 1, load);
}

StatusOr<double> capacity_of(const Place& place) {
  for (const PlaceModel& model : place.of_model) {
    const StepCost cost = roofline(*model.shape, *place.hardware);
    const auto prompt = static_cast<uint32_t>(model.input_times * place.input_mean);
    const std::string why = out_of_reach(*model.shape, cost, place.hardware->name, model.slo, prompt, 0);
    if (!why.empty()) return absl::FailedPreconditionError(why);
  }
  const double least = kRequests / kSecondsMost;
  double rate = std::max(place.devices / seconds_alone(place), least), low = 0, high = 0;
  for (int i = 0; i < 12 && (low == 0 || high == 0 || high > 1.1 * low); ++i) {
    ASSIGN_OR_RETURN(const PlaceScore score, score_of(place, "token", rate, 1, /*for_all=*/true));
    (score.on_time >= 0.9 ? low : high) = rate;
    if (high == least) break;
    rate = low == 0 ? std::max(high / 3, least) : high == 0 ? low * 2 : std::sqrt(low * high);
  }
  if (low == 0) return absl::FailedPreconditionError("even next to nothing is late with memory for all models");
  return low;
}

}  // namespace shoal
