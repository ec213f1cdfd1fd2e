// What bench/pooling_grid prints of its points.
#pragma once

#include <string>
#include <vector>

#include "bench/grid_design.h"

namespace shoal {

constexpr double kAlike = 0.01;  // share of tokens on time: of two policies, neither is ahead

struct GridPoint {
  Place place;
  bool apart = false;           // of a seed that nothing is tuned on
  double load = 0, requests_per_second = 0;
  std::vector<PlaceScore> scores;  // by policy
  const PlaceScore& best_other() const;
  double gain() const { return scores.front().on_time - best_other().on_time; }  // of the first policy; negative: a loss
  size_t winner() const;
  // Standard error of gain() over the draws, the same requests under both; NaN where fewer than two are known.
  double gain_error() const;
};

struct GridResult {
  std::vector<GridPoint> points;
  std::vector<std::string> out_of_reach;  // places where no policy can help, and why
  std::vector<std::string> broken;        // runs that broke an invariant
  bool stopped = false;
};

// The sums, who wins by how much along each dimension, and the worst points of the first policy.
std::string grid_table(GridResult& result, const std::vector<std::string>& policies, bool every_point);
std::string grid_csv(const GridResult& result, const std::vector<std::string>& policies);

// A row of grid_csv().
struct KnownPoint {
  uint64_t place_seed = 0;
  double load = 0, requests_per_second = 0;
  std::vector<PlaceScore> scores;  // by policy
};
// InvalidArgument, with the line, for a file that grid_csv() did not write for these policies and places.
StatusOr<std::vector<KnownPoint>> read_grid_csv(const std::string& path, const std::vector<std::string>& policies, const Unlike& unlike);

// By objective and length of answers: a dot for each point, its load to the right, the first policy's gain upwards, coloured
// by who wins.
std::string grid_svg(const GridResult& result, const std::vector<std::string>& policies);

}  // namespace shoal
