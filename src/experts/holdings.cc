#include "experts/holdings.h"

#include <algorithm>
#include <cmath>
#include <span>

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

Status Holdings::self_test() const {
  ThreadPool threads(1);
  ExpertCompute compute(threads);
  const auto held = now();
  for (size_t m = 0; m < models_.size(); ++m) {
    const auto& experts = held->models[m];
    const auto first = std::find_if(experts.begin(), experts.end(), [](const auto& expert) { return expert != nullptr; });
    if (first == experts.end()) continue;
    const ExpertPlan& plan = *models_[m].plan;
    std::vector<float> alone;
    for (const uint32_t rows : {1u, 3u}) {
      const std::span<float> input = compute.input(plan, rows);
      for (size_t i = 0; i < input.size(); ++i) input[i] = std::sin(static_cast<float>(i % plan.hidden()));
      const ExpertCompute::Group group{first->get(), rows};
      const std::vector<float> weights(rows, 1.0f);
      const std::span<const float> out = compute.run(plan, {&group, 1}, weights).last(plan.hidden());
      if (!std::all_of(out.begin(), out.end(), [](float x) { return std::isfinite(x); })) return data_loss("an expert of '", models_[m].name, "' gives no finite numbers; fetch its files again");
      if (rows > 1 && !std::equal(out.begin(), out.end(), alone.begin())) return absl::InternalError("an expert's rows depend on each other");
      alone.assign(out.begin(), out.end());
    }
  }
  return OkStatus();
}

}  // namespace shoal
