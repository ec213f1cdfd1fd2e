#include "slots/batch.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/check.h"

namespace shoal {
namespace {

constexpr std::array kRules = {std::pair(BatchRule::kAdaptive, std::string_view("adaptive")), std::pair(BatchRule::kDeadline, std::string_view("deadline")),
                               std::pair(BatchRule::kGreedy, std::string_view("greedy")), std::pair(BatchRule::kAll, std::string_view("all"))};
constexpr int64_t kPeriodWeight = 8;  // of the mean of periods: the last one counts an eighth
constexpr int64_t kPauseMin = 8;      // periods: longer than that is a pause, and no period

bool has(std::span<const ReadySlot> ready, uint32_t client) {
  return std::any_of(ready.begin(), ready.end(), [&](const ReadySlot& slot) { return slot.client == client; });
}

}  // namespace

std::string_view batch_rule_name(BatchRule rule) {
  for (const auto& [value, name] : kRules) {
    if (value == rule) return name;
  }
  return "";
}

std::optional<BatchRule> parse_batch_rule(std::string_view name) {
  for (const auto& [value, known] : kRules) {
    if (known == name) return value;
  }
  return std::nullopt;
}

void BatchFormer::arrived(uint32_t id, TimePoint now) {
  const auto found = clients_.find(id);
  CHECK(found != clients_.end());
  Client& client = found->second;
  if (client.heard) {
    const Duration gap = now - client.last;
    if (client.period == Duration(0)) client.period = gap;
    else if (gap <= client.period * kPauseMin) client.period += (gap - client.period) / kPeriodWeight;
  }
  client.heard = true;
  client.last = now;
  client.misses = 0;
}

bool BatchFormer::expected(uint32_t id, TimePoint now) const {
  const auto found = clients_.find(id);
  if (found == clients_.end()) return false;
  const Client& client = found->second;
  return client.heard && client.misses < options_.misses_max && client.period > Duration(0) && now - client.last <= 2 * client.period;
}

bool BatchFormer::covered(std::span<const ReadySlot> ready, TimePoint now) const {
  return std::all_of(clients_.begin(), clients_.end(), [&](const auto& entry) {
    return has(ready, entry.first) || (options_.rule != BatchRule::kAll && !expected(entry.first, now));
  });
}

BatchDecision BatchFormer::decide(std::span<const ReadySlot> ready, TimePoint now, Duration service) const {
  if (ready.empty()) return {};
  uint64_t rows = 0;
  TimePoint oldest = kForever, due = kForever;
  for (const ReadySlot& slot : ready) {
    rows += slot.rows;
    oldest = std::min(oldest, slot.since);
    due = std::min(due, slot.due);
  }
  if (options_.rule == BatchRule::kGreedy || rows >= options_.rows_max) return {.fire = true};
  if (options_.rule != BatchRule::kDeadline && covered(ready, now)) return {.fire = true};
  if (options_.rule == BatchRule::kAll) return {};
  TimePoint until = oldest + options_.wait_max;
  if (due != kForever) until = std::min(until, due - service);
  if (now >= until) return {.fire = true};
  return {.fire = false, .look_again = until};
}

void BatchFormer::fired(std::span<const ReadySlot> ready, TimePoint now) {
  for (auto& [id, client] : clients_) {
    if (!has(ready, id) && expected(id, now)) ++client.misses;
  }
}

}  // namespace shoal
