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

  void remove_model(ModelId model);  // nothing of it stands by any more. REQUIRES: on disk

  // Takes the pages of a model on disk, with what is left there of its weights; nullopt if so many are not free.
  std::optional<PagePool::Memory> begin_load(ModelId model);
  // The load ended. A failed one leaves the model on disk, its pages free and blank; of one that was called off stands by what
  // was left of it when it began, or set_whole(). REQUIRES: loading.
  enum class LoadEnd : uint8_t { kDone, kFailed, kCalledOff };
  void finish_load(ModelId model, LoadEnd end, TimePoint now);
  // Of its pages, by their place in its memory, only these are as a load leaves them: of a load that did not come to its end.
  // REQUIRES: loading or on the device; ascending and apart.
  void set_whole(ModelId model, std::vector<PageSpan> whole);
  // Frees the pages of a model on the device, where its weights stand by to be adopted by its next load.
  void drop(ModelId model);
  void touch(ModelId model, TimePoint now);  // used just now

  WeightsState state(ModelId model) const { return entry(model).state; }
  uint32_t weight_pages(ModelId model) const { return entry(model).weight_pages; }
  uint64_t weight_pages_of_all() const { return weight_pages_of_all_; }
  TimePoint last_used(ModelId model) const { return entry(model).last_used; }
  // Of its weights, what a load that begins now would bring. 0 while they are on the device or on their way.
  uint32_t pages_missing(ModelId model) const;
  void set_awaited(ModelId model, bool awaited) { pages_.set_awaited(model, awaited); }
  uint32_t pages_held() const { return pages_held_; }  // loading or on the device

  void check() const;

 private:
  struct Entry {
    bool hosted = false;
    WeightsState state = WeightsState::kOnDisk;
    uint32_t weight_pages = 0;
    PagePool::Memory memory;
    TimePoint last_used{};
  };
  const Entry& entry(ModelId model) const {
    CHECK(model.value < models_.size() && models_[model.value].hosted);
    return models_[model.value];
  }
  Entry& entry(ModelId model) { return const_cast<Entry&>(std::as_const(*this).entry(model)); }

  void left(Entry& e);

  PagePool& pages_;
  std::vector<Entry> models_;  // by id
  uint32_t pages_held_ = 0;
  uint64_t weight_pages_of_all_ = 0;
};

}  // namespace shoal
