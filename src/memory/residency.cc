#include "memory/residency.h"

namespace shoal {

void Residency::add_model(ModelId model, uint32_t weight_pages) {
  if (model.value >= models_.size()) models_.resize(model.value + 1);
  Entry& e = models_[model.value];
  CHECK(!e.hosted);
  e.hosted = true;
  e.weight_pages = weight_pages;
}

void Residency::remove_model(ModelId model) {
  CHECK(entry(model).state == WeightsState::kOnDisk);
  entry(model) = {};
}

std::optional<std::vector<PageRun>> Residency::begin_load(ModelId model) {
  Entry& e = entry(model);
  CHECK(e.state == WeightsState::kOnDisk);
  auto runs = pages_.allocate(e.weight_pages);
  if (!runs) return std::nullopt;
  e.pages = *runs;
  e.state = WeightsState::kLoading;
  pages_held_ += e.weight_pages;
  return runs;
}

void Residency::finish_load(ModelId model, bool ok, TimePoint now) {
  Entry& e = entry(model);
  CHECK(e.state == WeightsState::kLoading);
  e.state = WeightsState::kOnDevice;
  e.last_used = now;
  if (!ok) drop(model);
}

void Residency::drop(ModelId model) {
  Entry& e = entry(model);
  CHECK(e.state == WeightsState::kOnDevice);
  pages_.release(e.pages);
  e.pages.clear();
  e.state = WeightsState::kOnDisk;
  pages_held_ -= e.weight_pages;
}

void Residency::touch(ModelId model, TimePoint now) { entry(model).last_used = now; }

void Residency::check() const {
  uint32_t held = 0;
  for (const Entry& e : models_) {
    CHECK_EQ(page_count(e.pages), e.state == WeightsState::kOnDisk ? 0u : e.weight_pages);
    held += page_count(e.pages);
  }
  CHECK_EQ(held, pages_held_);
}

}  // namespace shoal
