#include "memory/residency.h"

namespace shoal {

void Residency::add_model(ModelId model, uint32_t weight_pages) {
  if (model.value >= models_.size()) models_.resize(model.value + 1);
  Entry& e = models_[model.value];
  CHECK(!e.hosted);
  e.hosted = true;
  e.weight_pages = weight_pages;
  weight_pages_of_all_ += weight_pages;
}

void Residency::remove_model(ModelId model) {
  CHECK(entry(model).state == WeightsState::kOnDisk);
  weight_pages_of_all_ -= entry(model).weight_pages;
  entry(model) = {};
  pages_.forget(model);
}

std::optional<PagePool::Memory> Residency::begin_load(ModelId model) {
  Entry& e = entry(model);
  CHECK(e.state == WeightsState::kOnDisk);
  auto memory = pages_.take_back(model, e.weight_pages);
  if (!memory) return std::nullopt;
  e.memory = *memory;
  e.state = WeightsState::kLoading;
  pages_held_ += e.weight_pages;
  return memory;
}

void Residency::finish_load(ModelId model, LoadEnd end, TimePoint now) {
  Entry& e = entry(model);
  CHECK(e.state == WeightsState::kLoading);
  e.state = WeightsState::kOnDevice;
  if (end == LoadEnd::kCalledOff) {
    pages_.stand_by(model, e.memory.pages, e.memory.whole);
    return left(e);
  }
  e.memory.whole = {{0, e.weight_pages}};
  e.last_used = now;
  if (end != LoadEnd::kFailed) return;
  e.memory.whole.clear();
  drop(model);
}

void Residency::set_whole(ModelId model, std::vector<PageSpan> whole) {
  Entry& e = entry(model);
  CHECK(e.state != WeightsState::kOnDisk);
  uint64_t at = 0;
  for (const PageSpan& span : whole) {
    CHECK_LE(at, uint64_t{span.first});
    at = uint64_t{span.first} + span.count;
  }
  CHECK_LE(at, uint64_t{e.weight_pages});
  e.memory.whole = std::move(whole);
}

void Residency::drop(ModelId model) {
  Entry& e = entry(model);
  CHECK(e.state == WeightsState::kOnDevice);
  pages_.stand_by(model, e.memory.pages, e.memory.whole);
  left(e);
}

void Residency::left(Entry& e) {
  e.memory = {};
  e.state = WeightsState::kOnDisk;
  pages_held_ -= e.weight_pages;
}

uint32_t Residency::pages_missing(ModelId model) const {
  const Entry& e = entry(model);
  return e.state == WeightsState::kOnDisk ? e.weight_pages - pages_.standing_by(model) : 0;
}

void Residency::touch(ModelId model, TimePoint now) { entry(model).last_used = now; }

void Residency::check() const {
  uint32_t held = 0;
  for (const Entry& e : models_) {
    CHECK_EQ(page_count(e.memory.pages), e.state == WeightsState::kOnDisk ? 0u : e.weight_pages);
    held += page_count(e.memory.pages);
  }
  CHECK_EQ(held, pages_held_);
}

}  // namespace shoal
