#include "policy/expert_calls.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "base/rng.h"

namespace shoal {

std::vector<ExpertAsk> ExpertCall::begin(const ExpertPlacement& placement, uint32_t layer, std::span<const ExpertRow> rows, uint64_t salt, std::span<const NodeId> suspected) {
  layer_ = layer;
  salt_ = salt;
  rows_.assign(rows.begin(), rows.end());
  states_.assign(rows.size(), State::kMissing);
  asked_.assign(rows.size(), NodeId());
  waiting_ = 0;
  missing_ = static_cast<uint32_t>(rows.size());
  return retry(placement, suspected);
}

std::vector<ExpertAsk> ExpertCall::ask(std::span<const uint32_t> rows, const ExpertPlacement& placement, std::span<const NodeId> suspected) {
  std::vector<ExpertAsk> asks;
  for (const uint32_t row : rows) {
    CHECK(states_[row] == State::kMissing);
    const uint64_t key = salt_ ^ mix64((uint64_t{rows_[row].token} << 32) | rows_[row].expert);
    const ExpertShare* copy = choose_copy(placement.of(layer_, rows_[row].expert), key, suspected);
    if (copy == nullptr) continue;
    states_[row] = State::kAsked;
    asked_[row] = copy->server;
    ++waiting_, --missing_;
    const auto same = std::lower_bound(asks.begin(), asks.end(), copy->server, [](const ExpertAsk& a, NodeId server) { return a.server < server; });
    if (same != asks.end() && same->server == copy->server) same->rows.push_back(row);
    else asks.insert(same, {copy->server, {row}});
  }
  return asks;
}

bool ExpertCall::answered(NodeId server, std::span<const uint32_t> rows) {
  for (const uint32_t row : rows) {
    if (row >= rows_.size() || states_[row] != State::kAsked || asked_[row] != server) return false;
  }
  for (const uint32_t row : rows) states_[row] = State::kAnswered;
  waiting_ -= static_cast<uint32_t>(rows.size());
  return true;
}

std::vector<ExpertAsk> ExpertCall::give_up(NodeId server, const ExpertPlacement& placement, std::span<const NodeId> suspected) {
  std::vector<uint32_t> rows;
  for (uint32_t row = 0; row < rows_.size(); ++row) {
    if (states_[row] == State::kAsked && asked_[row] == server) rows.push_back(row);
  }
  return give_up(server, rows, placement, suspected);
}

std::vector<ExpertAsk> ExpertCall::give_up(NodeId server, std::span<const uint32_t> rows, const ExpertPlacement& placement, std::span<const NodeId> suspected) {
  std::vector<uint32_t> open;
  for (const uint32_t row : rows) {
    if (row >= rows_.size() || states_[row] != State::kAsked || asked_[row] != server) continue;
    states_[row] = State::kMissing;
    --waiting_, ++missing_;
    open.push_back(row);
  }
  std::vector<NodeId> not_again(suspected.begin(), suspected.end());
  not_again.push_back(server);
  return ask(open, placement, not_again);
}

std::vector<ExpertAsk> ExpertCall::retry(const ExpertPlacement& placement, std::span<const NodeId> suspected) { return ask(missing(), placement, suspected); }

std::vector<uint32_t> ExpertCall::missing() const {
  std::vector<uint32_t> rows;
  for (uint32_t row = 0; row < states_.size(); ++row) {
    if (states_[row] == State::kMissing) rows.push_back(row);
  }
  return rows;
}

bool ExpertCall::awaits(NodeId server) const {
  for (size_t row = 0; row < states_.size(); ++row) {
    if (states_[row] == State::kAsked && asked_[row] == server) return true;
  }
  return false;
}

void ExpertAnswerTimes::add(Duration took) {
  const double us = std::max(1.0, to_seconds(took) * 1e6);
  ++counts_[std::min(kBuckets - 1, static_cast<size_t>(4 * std::log2(us)))];
  if (++seen_ < kHalveAt) return;
  seen_ = 0;
  for (uint32_t& count : counts_) seen_ += count /= 2;
}

Duration ExpertAnswerTimes::p99() const {
  const uint32_t beyond = seen_ / 100;  // so many took longer
  uint32_t above = 0;
  for (size_t bucket = kBuckets; bucket-- > 0;) {
    above += counts_[bucket];
    if (above > beyond) return from_seconds(std::exp2(static_cast<double>(bucket + 1) / 4) * 1e-6);
  }
  return Duration(0);
}

Duration ExpertAnswerTimes::timeout() const { return seen_ < kSeenMin ? kUnknown : std::max(kLeast, 5 * p99()); }

}  // namespace shoal
