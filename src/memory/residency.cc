#include "memory/residency.h"

#include <utility>

#include "base/check.h"

namespace shoal {

Residency::Entry& Residency::entry(ModelId model) {
  const auto found = models_.find(model);
  CHECK(found != models_.end());
  return found->second;
}

const Residency::Entry& Residency::entry(ModelId model) const {
  const auto found = models_.find(model);
  CHECK(found != models_.end());
  return found->second;
}

void Residency::add_model(ModelId model, uint32_t weight_pages) {
  CHECK(!models_.contains(model));
  models_[model].weight_pages = weight_pages;
}

void Residency::remove_model(ModelId model) {
  CHECK(entry(model).state == WeightsState::kOnDisk);
  models_.erase(model);
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
WeightsState Residency::state(ModelId model) const { return entry(model).state; }
uint32_t Residency::weight_pages(ModelId model) const { return entry(model).weight_pages; }
TimePoint Residency::last_used(ModelId model) const { return entry(model).last_used; }

void Residency::check() const {
  uint32_t held = 0;
  for (const auto& [model, e] : models_) {
    CHECK_EQ(page_count(e.pages), e.state == WeightsState::kOnDisk ? 0u : e.weight_pages);
    held += page_count(e.pages);
  }
  CHECK_EQ(held, pages_held_);
}

}  // namespace shoal
