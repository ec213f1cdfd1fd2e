// For tests: experts of a model, computed apart from it.
#pragma once

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "device/cpu_device.h"
#include "formats/checkpoint.h"
#include "models/expert_plan.h"

namespace shoal {

// Folders and files of the source tree and of the shared folder, as far as they are here, of families that are served.
inline std::vector<std::string> models_with_experts() {
  std::vector<std::string> found;
  for (const char* folder : {SHOAL_SOURCE_DIR "/models", SHOAL_SHARED_DIR "/models/reference", SHOAL_SHARED_DIR "/models/gguf", SHOAL_SHARED_DIR "/models/trained-moe"}) {
    if (!std::filesystem::exists(folder)) continue;
    for (const auto& entry : std::filesystem::directory_iterator(folder)) {
      if (!entry.is_directory() && entry.path().extension() != ".gguf") continue;
      const auto checkpoint = open_checkpoint(entry.path());
      if (checkpoint.ok() && (*checkpoint)->config.experts) found.push_back(entry.path());
    }
  }
  std::sort(found.begin(), found.end());
  return found;
}

// Answers what passes ask for, each expert loaded alone.
class Apart {
 public:
  explicit Apart(std::shared_ptr<const ExpertPlan> plan) : plan_(std::move(plan)) {}

  void answer(const Exchange& exchange) {
    const uint64_t width = exchange.width;
    const float* const input = CpuDevice::at(exchange.input);
    std::vector<ExpertCompute::Group> groups;
    std::vector<float> weights;
    std::vector<uint32_t> order;  // routed rows
    for (const auto& active : exchange.routes->active) {
      if (active.expert >= exchange.experts) continue;
      auto& held = held_[{exchange.layer, active.expert}];
      if (held == nullptr) held = *plan_->load(exchange.layer, active.expert, threads_);
      groups.push_back({held.get(), active.rows});
      for (uint32_t i = active.begin; i < active.begin + active.rows; ++i) order.push_back(i);
    }
    if (groups.empty()) return;
    const std::span<float> rows = compute_.input(*plan_, static_cast<uint32_t>(order.size()));
    for (size_t i = 0; i < order.size(); ++i) {
      std::memcpy(rows.data() + i * width, input + exchange.routes->routed[order[i]].row * width, width * sizeof(float));
      weights.push_back(exchange.routes->routed[order[i]].weight);
    }
    const std::span<const float> out = compute_.run(*plan_, groups, weights);
    for (size_t i = 0; i < order.size(); ++i) std::memcpy(CpuDevice::at(exchange.output) + order[i] * width, out.data() + i * width, width * sizeof(float));
  }

  size_t loaded() const { return held_.size(); }

 private:
  ThreadPool threads_{2};
  const std::shared_ptr<const ExpertPlan> plan_;
  ExpertCompute compute_{threads_};
  std::map<std::pair<uint32_t, uint32_t>, std::shared_ptr<const HeldExpert>> held_;
};

}  // namespace shoal
