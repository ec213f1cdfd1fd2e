// What this machine measured of its models, kept between runs, so that the first turns after a start are planned with more
// than a guess. A JSON file; losing it costs nothing but those guesses.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "base/json.h"
#include "host/served_models.h"
#include "policy/estimator.h"
#include "roles/node.h"

namespace shoal {

class EstimateStore {
 public:
  // Reads the file. One that is damaged is left out, with a line in the log; one that is not there yet is no fault.
  // "" keeps nothing. `threads`: that compute; another number is another machine.
  EstimateStore(std::string path, int threads);

  std::optional<ModelEstimator> find(const NodeModel& model) const;
  void put(const NodeModel& model, const ModelEstimator& costs);
  // Writes the file anew, through a second one: there is a whole one at any time. Unavailable says why it cannot, and what to do.
  Status save();

  static constexpr size_t kFileBytesMax = 16u << 20;
  static constexpr size_t kModelsMax = 4096;

 private:
  std::string key_of(const NodeModel& model) const;

  const std::string path_;
  const std::string machine_;
  std::map<std::string, std::string> models_;  // by key, as ModelEstimator::to_json()
};

// Keeps the estimates of one node.
class EstimateKeeper {
 public:
  explicit EstimateKeeper(EstimateStore store) : store_(std::move(store)) {}

  std::optional<ModelEstimator> find(const NodeModel& model) const { return store_.find(model); }
  void keep(const Node& node, const ServedModels& served, TimePoint now);  // once a minute
  void save(const Node& node, const ServedModels& served);                 // now

 private:
  EstimateStore store_;
  TimePoint kept_{};
  bool complained_ = false;  // that they cannot be kept
};

}  // namespace shoal
