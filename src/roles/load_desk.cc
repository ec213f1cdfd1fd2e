#include "roles/load_desk.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace shoal {
namespace {

constexpr double kCopiedMin = 0.25;  // share of the weights from which on a load says how long bytes take

}  // namespace

std::optional<ModelId> LoadDesk::making_room() const {
  const auto* room = std::get_if<MakingRoom>(&state_);
  return room == nullptr ? std::nullopt : std::optional(room->model);
}

std::optional<ModelId> LoadDesk::under_way() const {
  if (const Loading* load = loading()) return load->model;
  return packing() == nullptr ? std::nullopt : std::optional(packing()->model);
}

bool LoadDesk::cancelled() const {
  if (const Loading* load = loading()) return load->cancelled;
  return packing() != nullptr && packing()->cancelled;
}

void LoadDesk::make_room(ModelId model) {
  CHECK(!under_way());
  state_ = MakingRoom{model};
}

void LoadDesk::stop_making_room() {
  if (making_room()) state_ = Idle{};
}

void LoadDesk::begin(ModelId model, TimePoint wanted_since, double copied, TimePoint now) {
  CHECK(!under_way());
  state_ = Loading{model, wanted_since, copied};
  began_ = now;
  step_beside_load_ = true;
}

void LoadDesk::cancel() {
  CHECK(under_way().has_value());
  if (auto* load = std::get_if<Loading>(&state_)) load->cancelled = true;
  if (auto* packed = std::get_if<Packing>(&state_)) packed->cancelled = true;
}

LoadDesk::Loading LoadDesk::end() {
  CHECK(loading() != nullptr);
  return std::get<Loading>(std::exchange(state_, Idle{}));
}

void LoadDesk::pack(ModelId model) {
  CHECK(!under_way());
  state_ = Packing{model};
}

void LoadDesk::fail_packing(const Status& why, std::vector<PageSpan> whole) {
  CHECK(packing() != nullptr);
  auto& packing = std::get<Packing>(state_);
  packing.failed = why;
  packing.whole = std::move(whole);
}

LoadDesk::Packing LoadDesk::end_packing() {
  CHECK(packing() != nullptr);
  return std::get<Packing>(std::exchange(state_, Idle{}));
}

void LoadDesk::step_begun(ModelId model, bool beside, TimePoint now) {
  if (auto* load = std::get_if<Loading>(&state_); load != nullptr && !beside) load->waited += now - std::max(began_, idle_since_);
  if (packing(model)) std::get<Packing>(state_).stepped = true;
  step_beside_load_ = (beside && step_beside_load_) || loading() != nullptr;
  step_beside_packing_ = (beside && step_beside_packing_) || packing() != nullptr;
}

std::optional<LoadDesk::Cost> LoadDesk::charge(double extra_seconds) {
  if (!step_beside_load_) return std::nullopt;
  if (ended_) {
    ended_->waited_seconds += extra_seconds;
    return std::exchange(ended_, std::nullopt);
  }
  if (auto* load = std::get_if<Loading>(&state_)) load->waited += from_seconds(extra_seconds);
  return std::nullopt;
}

std::optional<LoadDesk::Cost> LoadDesk::measure(const Loading& ended, uint64_t weight_bytes, bool stepping, TimePoint now) {
  const double seconds = to_seconds(now - began_);
  Duration waited = ended.waited;
  if (!stepping) waited += now - std::max(began_, idle_since_);
  if (ended.copied >= kCopiedMin) observe(seconds, static_cast<uint64_t>(ended.copied * static_cast<double>(weight_bytes)));
  const Cost cost{ended.model, seconds, to_seconds(waited), ended.copied};
  if (ended_ || !stepping) return cost;
  ended_ = cost;
  return std::nullopt;
}

LoadDesk::Cost LoadDesk::measure_packed(ModelId model, uint64_t weight_bytes, double copied, TimePoint now) {
  const double seconds = to_seconds(now - began_);
  if (copied >= kCopiedMin) observe(seconds, static_cast<uint64_t>(copied * static_cast<double>(weight_bytes)));
  return {model, seconds, seconds, copied};
}

void LoadDesk::observe(double seconds, uint64_t bytes) {
  seconds_per_byte_.add(seconds / static_cast<double>(std::max<uint64_t>(bytes, 1)));
}

double LoadDesk::seconds_for(uint64_t weight_bytes) const {
  return static_cast<double>(weight_bytes) * (seconds_per_byte_.count == 0 ? 1 / bytes_per_second_ : seconds_per_byte_.value);
}

}  // namespace shoal
