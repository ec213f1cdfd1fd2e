#include "roles/switch_log.h"

#include <utility>

namespace shoal {

void SwitchLog::advance(TimePoint now, bool idle, const std::function<bool(ModelId)>& waits) {
  const double seconds = to_seconds(now - std::exchange(at_, now));
  if (!idle) return;
  for (auto& [model, open] : open_) {
    if (waits(model)) open.record.visible_seconds += seconds;
  }
}

void SwitchLog::planned(ModelId model, TimePoint asked, TimePoint now) {
  const auto [found, is_new] = open_.try_emplace(model);
  if (!is_new) return;
  SwitchRecord& record = found->second.record;
  record.model = model;
  record.asked = std::min(asked, now);
  record.planned = now;
}

void SwitchLog::dropped(ModelId model, ModelId victim) {
  if (const auto found = open_.find(model); found != open_.end()) found->second.record.dropped.push_back(victim);
}

void SwitchLog::begun(ModelId model, bool ahead, TimePoint now) {
  const auto found = open_.find(model);
  if (found == open_.end()) return;
  found->second.record.begun = now;
  found->second.record.ahead = ahead;
}

void SwitchLog::ready(ModelId model, const LoadStages& stages, SwitchEnd end, bool packing, TimePoint now) {
  const auto found = open_.find(model);
  if (found == open_.end()) return;
  found->second.record.ready = now;
  found->second.record.stages = stages;
  found->second.packing = packing;
  if (end != SwitchEnd::kServed) close_if_packed(model, end);
}

void SwitchLog::packed(ModelId model, const LoadStages& stages) {
  const auto found = open_.find(model);
  if (found == open_.end()) return;
  found->second.packing = false;
  found->second.record.stages = stages;
  if (found->second.end) close(model, *found->second.end);
}

void SwitchLog::swap_in_begun(ModelId model, uint64_t move, TimePoint now) {
  const auto found = open_.find(model);
  if (found == open_.end()) return;
  if (found->second.swaps.empty()) found->second.swap_began = now;
  found->second.swaps.insert(move);
}

void SwitchLog::swap_in_ended(ModelId model, uint64_t move, TimePoint now) {
  const auto found = open_.find(model);
  if (found == open_.end() || found->second.swaps.erase(move) == 0 || !found->second.swaps.empty()) return;
  found->second.record.swap_in_seconds += to_seconds(now - found->second.swap_began);
}

void SwitchLog::stepped(ModelId model, TimePoint now) {
  const auto found = open_.find(model);
  if (found == open_.end() || found->second.end == SwitchEnd::kServed) return;
  Open& open = found->second;
  if (!open.swaps.empty()) open.record.swap_in_seconds += to_seconds(now - open.swap_began);  // the rest comes meanwhile
  open.record.first_step = now;
  close_if_packed(model, SwitchEnd::kServed);
}

void SwitchLog::abandoned(ModelId model) {
  const auto found = open_.find(model);
  if (found == open_.end()) return;
  if (found->second.record.ready != kForever) return close(model, SwitchEnd::kUnused);
  open_.erase(found);  // nothing was loaded
}

void SwitchLog::close_if_packed(ModelId model, SwitchEnd end) {
  Open& open = open_.at(model);
  if (!open.packing) return close(model, end);
  open.end = end;
}

void SwitchLog::close(ModelId model, SwitchEnd end) {
  const auto found = open_.find(model);
  found->second.record.end = end;
  closed_.push_back(std::move(found->second.record));
  open_.erase(found);
  if (closed_.size() > kRecordsMax) closed_.pop_front();
}

std::vector<SwitchRecord> SwitchLog::take() {
  std::vector<SwitchRecord> out(std::make_move_iterator(closed_.begin()), std::make_move_iterator(closed_.end()));
  closed_.clear();
  return out;
}

}  // namespace shoal
