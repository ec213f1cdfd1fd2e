#include "host/weights_driver.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/bytes.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"
#include "runner/kv_store.h"

namespace shoal {
namespace {

constexpr Duration kProgressLogInterval = std::chrono::seconds(1);

}  // namespace

void WeightsDriver::start(const LoadWeights& effect, TimePoint now) {
  const ServedModels::Entry& served = served_.at(effect.model);
  log_info("loading '", served.model.name, "' from ", served.model.path);
  started_ = logged_ = now;
  const auto slots = slots_.extract(effect.model);
  loader_->start({served.model, served.facts, page_ranges(effect.pages), effect.alone, effect.whole, slots.empty() ? nullptr : slots.mapped()});
}

void WeightsDriver::drop(ModelId id) {
  const auto found = residents_.find(id);
  CHECK(found != residents_.end());
  const TimePoint begin = steady_now();
  if (found->second.model != nullptr) {
    if (auto slots = found->second.model->expert_slots()) slots_[id] = std::move(slots);
  }
  found->second.model.reset();
  if (!found->second.memory.empty()) device_.unmap(found->second.memory);
  log_debug("dropped '", served_.at(id).model.name, "'");
  residents_.erase(found);
  unmap_seconds_ += to_seconds(steady_now() - begin);
}

Event WeightsDriver::ended(LoadedModel loaded, TimePoint now) {
  const ModelId id = loaded.id;
  if (loaded.part == LoadedModel::Part::kNamed) return DigestKnown{id, loaded.weights};
  if (loaded.part == LoadedModel::Part::kUsable) {
    log_info("'", served_.at(id).model.name, "' computes from its files until it is loaded");
    residents_[id] = {loaded.memory, std::move(loaded.model)};
    return WeightsReady{id, OkStatus(), loaded.stages, loaded.weights, /*packing=*/true};
  }
  log_end(loaded, now);
  loaded.stages.unmap_seconds = std::exchange(unmap_seconds_, 0);
  if (loaded.part == LoadedModel::Part::kPacked) return WeightsPacked{id, loaded.status, loaded.stages, std::move(loaded.whole)};
  residents_[id] = {loaded.memory, std::move(loaded.model)};
  return WeightsReady{id, loaded.status, loaded.stages, loaded.weights, /*packing=*/false, std::move(loaded.whole)};
}

void WeightsDriver::log_end(const LoadedModel& loaded, TimePoint now) const {
  const ServedModels::Entry& served = served_.at(loaded.id);
  const auto ms = static_cast<int64_t>(to_seconds(now - started_) * 1000);
  if (loaded.status.ok()) {
    const std::string there = loaded.stages.bytes_adopted == 0 ? rate(now) : absl::StrCat(format_bytes(loaded.stages.bytes_adopted), " of them were there");
    log_info("loaded '", served.model.name, "' (", format_bytes(served.facts.weight_bytes), ") in ", ms, " ms, ", there);
  } else if (loaded.status.code() == StatusCode::kCancelled) {
    log_info("loading '", served.model.name, "' was called off after ", ms, " ms");
  } else {
    log_error("could not load '", served.model.name, "': ", loaded.status.message());
  }
}

// Of the weights as they are on the device, since the load began: "1.23 GB/s".
std::string WeightsDriver::rate(TimePoint now) const {
  return absl::StrFormat("%.2f GB/s", static_cast<double>(loader_->bytes_done()) / 1e9 / std::max(to_seconds(now - started_), 1e-3));
}

void WeightsDriver::log_progress(ModelId loading, TimePoint now) {
  if (now < logged_ + kProgressLogInterval) return;
  logged_ = now;
  log_info("loading '", served_.at(loading).model.name, "': ", static_cast<int>(loader_->progress() * 100), " %, ", rate(now));
}

}  // namespace shoal
