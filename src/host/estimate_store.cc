#include "host/estimate_store.h"

#include <filesystem>
#include <fstream>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "host/state_file.h"
#include "nlohmann/json.hpp"

namespace shoal {
namespace {

constexpr int kVersion = 1;

std::string cpu_name() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);) {
    if (line.starts_with("model name")) return line.substr(line.find(':') + 2);
  }
  return "unknown CPU";
}

StatusOr<std::map<std::string, std::string>> parse(const std::string& text) {
  ASSIGN_OR_RETURN(const Json root, parse_json(text));
  if (!root.is_object() || root.value("version", Json()) != Json(kVersion) || !root.contains("models") || !root["models"].is_object()) {
    return invalid_argument("is not a file of estimates of version ", kVersion);
  }
  std::map<std::string, std::string> out;
  for (const auto& [key, value] : root["models"].items()) {
    std::string line = dump_json(value);
    RETURN_IF_ERROR(annotate(ModelEstimator::from_json(line).status(), key));
    if (out.size() < EstimateStore::kModelsMax) out.emplace(key, std::move(line));
  }
  return out;
}

}  // namespace

EstimateStore::EstimateStore(std::string path, int threads) : path_(std::move(path)), machine_(absl::StrCat(cpu_name(), ", ", threads, " threads")) {
  std::error_code ignored;
  if (path_.empty() || !std::filesystem::exists(path_, ignored)) return;
  const auto text = read_file(path_, kFileBytesMax);
  auto models = text.ok() ? parse(*text) : StatusOr<std::map<std::string, std::string>>(text.status());
  if (models.ok()) {
    models_ = *std::move(models);
  } else {
    log_warning(path_, ": the estimates of earlier runs are left out: ", models.status().message());
  }
}

std::string EstimateStore::key_of(const NodeModel& model) const {
  return absl::StrCat(model.name, " (", model.weight_bytes, " bytes) on ", machine_);
}

std::optional<ModelEstimator> EstimateStore::find(const NodeModel& model) const {
  const auto found = models_.find(key_of(model));
  if (found == models_.end()) return std::nullopt;
  auto costs = ModelEstimator::from_json(found->second);
  return costs.ok() ? std::optional(*std::move(costs)) : std::nullopt;
}

void EstimateStore::put(const NodeModel& model, const ModelEstimator& costs) {
  const std::string key = key_of(model);
  if (models_.contains(key) || models_.size() < kModelsMax) models_[key] = costs.to_json();
}

Status EstimateStore::save() {
  if (path_.empty()) return OkStatus();
  Json models = Json::object();
  for (const auto& [key, line] : models_) {
    if (auto value = parse_json(line); value.ok()) models[key] = *std::move(value);
  }
  const Status written = replace_file(path_, dump_json({{"version", kVersion}, {"models", std::move(models)}}, 1) + "\n");
  if (written.ok()) return written;
  return unavailable(path_, ": the estimates cannot be kept for the next run: ", written.message(),
                     "; make the folder writable, or name another file with --estimates (none: keep none)");
}

void EstimateKeeper::keep(const Node& node, const ServedModels& served, TimePoint now) {
  constexpr Duration kInterval = std::chrono::seconds(60);
  if (now < kept_ + kInterval) return;
  if (kept_ != TimePoint{}) save(node, served);
  kept_ = now;
}

void EstimateKeeper::save(const Node& node, const ServedModels& served) {
  for (const auto& [id, measured] : node.costs()) {
    if (measured.measured()) store_.put(served.at(id).facts, measured);
  }
  const Status saved = store_.save();
  if (!saved.ok() && !std::exchange(complained_, true)) log_warning(saved.message());
}

}  // namespace shoal
