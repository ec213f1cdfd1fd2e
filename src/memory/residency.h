// Where each model's weights are: on disk, on their way, or on the device. Bytes are exact; ids only.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "base/check.h"
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

  WeightsState state(ModelId model) const { return entry(model).state; }
  uint32_t weight_pages(ModelId model) const { return entry(model).weight_pages; }
  TimePoint last_used(ModelId model) const { return entry(model).last_used; }
  uint32_t pages_held() const { return pages_held_; }  // loading or on the device

  void check() const;

 private:
  struct Entry {
    bool hosted = false;
    WeightsState state = WeightsState::kOnDisk;
    uint32_t weight_pages = 0;
    std::vector<PageRun> pages;
    TimePoint last_used{};
  };
  const Entry& entry(ModelId model) const {
    CHECK(model.value < models_.size() && models_[model.value].hosted);
    return models_[model.value];
  }
  Entry& entry(ModelId model) { return const_cast<Entry&>(std::as_const(*this).entry(model)); }

  PagePool& pages_;
  std::vector<Entry> models_;  // by id
  uint32_t pages_held_ = 0;
};

}  // namespace shoal
