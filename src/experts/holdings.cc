#include "experts/holdings.h"

#include <algorithm>

#include "base/bytes.h"

namespace shoal {

Holdings::Holdings(std::vector<ExpertModel> models, uint64_t memory_bytes, int threads)
    : models_(std::move(models)), memory_bytes_(memory_bytes), load_threads_(ThreadPoolOptions{.threads = threads, .cpus = {}, .pin = false}) {
  auto now = std::make_shared<Snapshot>();
  now->version = version_;
  for (const ExpertModel& model : models_) {
    shapes_.push_back(shape_of(*model.plan));
    now->models.emplace_back(shapes_.back().count());
  }
  now_ = std::move(now);
}

std::shared_ptr<const Holdings::Snapshot> Holdings::now() const {
  std::lock_guard lock(mutex_);
  return now_;
}

std::optional<size_t> Holdings::find(uint64_t stamp) const {
  for (size_t i = 0; i < models_.size(); ++i) {
    if (models_[i].stamp == stamp) return i;
  }
  return std::nullopt;
}

ExpertSet Holdings::set(size_t model) const {
  const auto snapshot = now();
  ExpertSet set(shapes_[model]);
  for (uint32_t i = 0; i < shapes_[model].count(); ++i) {
    if (snapshot->models[model][i] != nullptr) set.add(i);
  }
  return set;
}

uint64_t Holdings::bytes() const {
  uint64_t bytes = 0;
  const auto snapshot = now();
  for (const auto& model : snapshot->models) {
    for (const auto& held : model) bytes += held == nullptr ? 0 : held->bytes();
  }
  return bytes;
}

Status Holdings::hold(size_t model, const ExpertSet& wanted) {
  std::lock_guard changing(changing_);
  auto next = std::make_shared<Snapshot>(*now());
  const ExpertPlan& plan = *models_[model].plan;
  const uint32_t per_layer = shapes_[model].experts;
  uint64_t more = 0;
  for (const uint32_t index : wanted.list()) {
    if (next->models[model][index] == nullptr) more += plan.bytes(index / per_layer, index % per_layer);
  }
  const uint64_t held = bytes();
  if (held + more > memory_bytes_) {
    return resource_exhausted("these experts of '", models_[model].name, "' take ", format_bytes(more), ", and ", format_bytes(memory_bytes_ - std::min(held, memory_bytes_)),
                              " of ", format_bytes(memory_bytes_), " are free; raise --memory, or hold fewer");
  }
  for (const uint32_t index : wanted.list()) {
    auto& slot = next->models[model][index];
    if (slot != nullptr) continue;
    ASSIGN_OR_RETURN(slot, plan.load(index / per_layer, index % per_layer, load_threads_));
  }
  std::lock_guard lock(mutex_);
  next->version = version_ + 1;
  now_ = std::move(next);
  ++version_;
  return OkStatus();
}

void Holdings::drop(size_t model, const ExpertSet& unwanted) {
  std::lock_guard changing(changing_);
  auto next = std::make_shared<Snapshot>(*now());
  for (const uint32_t index : unwanted.list()) next->models[model][index] = nullptr;
  std::lock_guard lock(mutex_);
  next->version = version_ + 1;
  now_ = std::move(next);
  ++version_;
}

}  // namespace shoal
