#include "roles/device_log.h"

namespace shoal {
namespace {
constexpr Duration kSameTurn = std::chrono::milliseconds(2);
}  // namespace

void DeviceLog::add(const DeviceEvent& event) {
  events_.push_back(event);
  if (events_.size() > kEventsMax) events_.pop_front();
}

void DeviceLog::step_begun(ModelId model, DeviceAct act, uint64_t tokens) { steps_[model] = {act, model, at_, at_, 1, tokens}; }

void DeviceLog::step_ended(ModelId model) {
  const DeviceEvent step = steps_.extract(model).mapped();
  if (turn_ && (turn_->model != step.model || turn_->act != step.act || step.begin > turn_->end + kSameTurn)) {
    add(*turn_);
    turn_.reset();
  }
  if (!turn_) turn_ = DeviceEvent{step.act, step.model, step.begin};
  turn_->end = at_;
  ++turn_->steps;
  turn_->amount += step.amount;
}

void DeviceLog::copy_begun(ModelId model, uint64_t move, bool to_host, uint64_t bytes) {
  copies_[{model, move}] = {to_host ? DeviceAct::kKvOut : DeviceAct::kKvIn, model, at_, at_, 0, bytes};
  (to_host ? bytes_out_ : bytes_in_) += bytes;
}

void DeviceLog::copy_ended(ModelId model, uint64_t move) {
  const auto copy = copies_.find({model, move});
  if (copy == copies_.end()) return;
  copy->second.end = at_;
  add(copy->second);
  copies_.erase(copy);
}

std::vector<DeviceEvent> DeviceLog::take() {
  if (turn_) add(*turn_);
  turn_.reset();
  std::vector<DeviceEvent> out(events_.begin(), events_.end());
  events_.clear();
  return out;
}

}  // namespace shoal
