// The points of bench/pooling_grid: places drawn from a seed so that few of them cover every dimension evenly (a Latin
// hypercube: each value of a dimension occurs as often as any other), and what is simulated there.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "sim/cluster.h"
#include "sim/setup.h"

namespace shoal {

constexpr const char* kPolicies[] = {"token", "request", "static", "paper"};
constexpr size_t kPolicyCount = std::size(kPolicies);
constexpr double kLoads[] = {0.2, 0.35, 0.5, 0.7, 0.85, 1.0, 1.3, 2.0, 3.0};  // of the capacity

// In what the models of a place differ from each other, and places from the usual.
struct Unlike {
  bool sizes = false;      // the largest has up to five times the weights of the smallest
  bool lengths = false;    // of answers, by up to 16; of prompts, by up to 4, and not of the same models
  bool deadlines = false;  // a third of them has each objective
  bool untold = false;     // no client says how long its answer will be
  static Unlike of(const std::vector<std::string>& names);  // of kUnlike
  std::string to_string(const char* between) const;         // "sizes, lengths" between commas
};
constexpr const char* kUnlike[] = {"sizes", "lengths", "deadlines", "untold"};

struct PlaceModel {
  const ModelShape* shape = nullptr;
  SloTarget slo;
  double input_times = 1, output_times = 1;  // of the place's mean
};

// Devices, models, an objective and a workload; all but how much of it comes.
struct Place {
  uint64_t seed = 0;
  const Hardware* hardware = nullptr;
  uint32_t devices = 1;
  uint32_t models = 2;
  uint32_t rooms = 1;           // models that a device holds at once; of unlike ones, in the mean
  double load_factor = 1;       // of the link's speed: how quickly weights come
  const char* strictness = "";  // of the first model
  double input_mean = 0, output_mean = 0, zipf = 0, cv = 1;
  Unlike unlike;
  std::vector<PlaceModel> of_model;  // by id
};

// "2 of 20 models on A10, loads x1, strict, 300 -> 64 tokens, Zipf 1, CV 2".
std::string to_string(const Place& place);

// What is not `unlike` is as without.
std::vector<Place> draw_places(uint64_t seed, uint32_t count, uint32_t devices, const Unlike& unlike);

// What the devices of this place are under a policy; `for_all`: with memory for every model.
// Arrivals and lengths are those of the draw: the same under every policy.
StatusOr<WorldSetup> make_world(const Place& place, const std::string& policy, double requests_per_second, bool for_all, uint32_t draw = 0);

// The most requests per second of which a place with memory for all keeps 90 % of the tokens on time, within 5 %.
// FailedPrecondition if even next to nothing is late: no policy can help there.
StatusOr<double> capacity_of(const Place& place);

// By when `token` has given every model with requests a turn, in seconds: roles/served_set.h.
double silence_bound(const Place& place);

struct PlaceScore {
  double on_time = 0;            // share of tokens, the mean of the draws
  double silent_s = 0;           // the longest that a model with requests under way had no token for any of them
  std::vector<double> of_draws;  // `on_time` of each; empty where only the mean is known
};
StatusOr<PlaceScore> score_of(const Place& place, const std::string& policy, double requests_per_second, uint32_t draws = 1, bool for_all = false);

}  // namespace shoal
