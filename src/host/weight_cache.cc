#include "host/weight_cache.h"

#include <algorithm>
#include <utility>

#include "base/bytes.h"
#include "base/log.h"
#include "runner/kv_store.h"

namespace shoal {
namespace {

constexpr double kSecondsPerByte = 1e-9;  // believed until a read was measured

}  // namespace

StatusOr<std::unique_ptr<WeightCache>> WeightCache::make(uint64_t bytes) {
  const auto pages = static_cast<uint32_t>(std::min<uint64_t>(bytes / kPageBytes, UINT32_MAX / 2));
  ASSIGN_OR_RETURN(std::unique_ptr<HostPages> memory, HostPages::make(std::max(pages, 1u)));
  return std::unique_ptr<WeightCache>(new WeightCache(std::move(memory), pages));
}

WeightCache::~WeightCache() {
  for (auto& [model, kept] : kept_) forget(model);
}

KeptWeights* WeightCache::use(ModelId model) {
  if (tier_.pages() == 0) return nullptr;
  const auto [found, is_new] = kept_.try_emplace(model);
  if (is_new) {
    found->second.weights.room = [this, model](uint64_t bytes) { return make_room(model, bytes); };
    found->second.seconds_per_byte = kSecondsPerByte;
  }
  if (tier_.contains(model)) tier_.use(model);
  return &found->second.weights;
}

void WeightCache::measured(ModelId model, uint64_t bytes, double seconds) {
  if (const auto found = kept_.find(model); found != kept_.end() && bytes > 0) {
    found->second.seconds_per_byte = seconds / static_cast<double>(bytes);
  }
}

// Its bytes are not there any more; what reading them took is still known.
void WeightCache::forget(ModelId model) {
  KeptWeights& weights = kept_.at(model).weights;
  if (!weights.memory.empty()) memory_->unmap(weights.memory);
  weights.memory = {};
  weights.identity.clear();
  weights.have.clear();
  tier_.remove(model);
}

std::span<std::byte> WeightCache::make_room(ModelId model, uint64_t bytes) {
  forget(model);
  const auto pages = static_cast<uint32_t>(std::min<uint64_t>(div_up(bytes, kPageBytes), UINT32_MAX));
  const auto place = tier_.add(model, pages, kept_.at(model).seconds_per_byte * static_cast<double>(bytes));
  if (!place) return {};
  for (const ModelId gone : place->evicted) forget(gone);
  StatusOr<std::span<std::byte>> memory = memory_->map(page_ranges(place->pages));
  if (!memory.ok()) {
    log_warning("weight cache: ", memory.status().message());
    tier_.remove(model);
    return {};
  }
  return *memory;
}

}  // namespace shoal
