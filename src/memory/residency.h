// Where each model's weights are: on disk, on their way, or on the device. Bytes are exact; ids only.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "base/ids.h"
#include "base/time.h"
#include "memory/page_pool.h"

namespace shoal {

enum class WeightsState : uint8_t { kOnDisk, kLoading, kOnDevice };

class Residency {
 public:
  // `pages` outlives it.
  explicit Residency(PagePool& pages) : pages_(pages) {}

  void add_model(ModelId model, uint32_t weight_pages);

  void remove_model(ModelId model);  // REQUIRES: on disk

  // Takes the pages of a model on disk; nullopt if so many are not free.
  std::optional<std::vector<PageRun>> begin_load(ModelId model);
  // The load ended. A failed one leaves the model on disk, its pages free. REQUIRES: loading.
  void finish_load(ModelId model, bool ok, TimePoint now);
  // Frees the pages of a model on the device.
  void drop(ModelId model);
  void touch(ModelId model, TimePoint now);  // used just now

  WeightsState state(ModelId model) const;
  uint32_t weight_pages(ModelId model) const;
  TimePoint last_used(ModelId model) const;
  uint32_t pages_held() const { return pages_held_; }  // loading or on the device

  void check() const;

 private:
  struct Entry {
    WeightsState state = WeightsState::kOnDisk;
    uint32_t weight_pages = 0;
    std::vector<PageRun> pages;
    TimePoint last_used{};
  };
  Entry& entry(ModelId model);
  const Entry& entry(ModelId model) const;

  PagePool& pages_;
  absl::flat_hash_map<ModelId, Entry> models_;
  uint32_t pages_held_ = 0;
};

}  // namespace shoal
