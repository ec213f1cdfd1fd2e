#include "policy/expert_calls.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "base/rng.h"

namespace shoal {

std::vector<ExpertAsk> ExpertCall::begin(const ExpertServers& servers, uint32_t layer, std::span<const ExpertRow> rows, uint64_t salt) {
  layer_ = layer;
  salt_ = salt;
  rows_.assign(rows.begin(), rows.end());
  states_.assign(rows.size(), State::kMissing);
  asked_.assign(rows.size(), NodeId());
  waiting_ = 0;
  missing_ = static_cast<uint32_t>(rows.size());
  return retry(servers);
}

void ExpertCall::give(uint32_t row, NodeId server, std::vector<ExpertAsk>& asks) {
  states_[row] = State::kAsked;
  asked_[row] = server;
  ++waiting_, --missing_;
  const auto same = std::lower_bound(asks.begin(), asks.end(), server, [](const ExpertAsk& a, NodeId id) { return a.server < id; });
  if (same != asks.end() && same->server == server) same->rows.push_back(row);
  else asks.insert(same, {server, {row}});
}

void ExpertCall::ask_by_share(uint32_t row, const ExpertServers& servers, std::vector<ExpertAsk>& asks) {
  const uint64_t key = salt_ ^ mix64((uint64_t{rows_[row].token} << 32) | rows_[row].expert);
  const ExpertShare* const copy = choose_copy(servers.placement.of(layer_, rows_[row].expert), key, servers.suspected);
  if (copy != nullptr) give(row, copy->server, asks);
}

void ExpertCall::ask_by_work(std::span<const uint32_t> rows, const ExpertServers& servers, std::vector<ExpertAsk>& asks) {
  std::vector<uint32_t> order(rows.begin(), rows.end());
  std::sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) { return std::pair(rows_[a].expert, a) < std::pair(rows_[b].expert, b); });
  std::vector<std::span<const uint32_t>> experts;  // rows of each
  for (size_t begin = 0, end; begin < order.size(); begin = end) {
    end = begin + 1;
    while (end < order.size() && rows_[order[end]].expert == rows_[order[begin]].expert) ++end;
    experts.push_back(std::span(order).subspan(begin, end - begin));
  }
  std::stable_sort(experts.begin(), experts.end(), [](const auto& a, const auto& b) { return a.size() > b.size(); });
  const double part = expert_work(rows.size(), experts.size()) / static_cast<double>(servers.work.size());
  std::vector<ExpertServerWork> work(servers.work.begin(), servers.work.end());
  for (const auto& of : experts) {
    std::vector<ExpertServerWork*> copies;  // that may be asked
    for (const ExpertShare& share : servers.placement.of(layer_, rows_[of.front()].expert)) {
      if (std::find(servers.suspected.begin(), servers.suspected.end(), share.server) != servers.suspected.end()) continue;
      const auto at = std::find_if(work.begin(), work.end(), [&](const ExpertServerWork& w) { return w.server == share.server; });
      if (at != work.end()) copies.push_back(&*at);
    }
    if (copies.empty()) continue;
    const bool split = expert_work(of.size(), 1) > part;
    const size_t piece = split ? (of.size() + copies.size() - 1) / copies.size() : of.size();
    for (size_t begin = 0; begin < of.size(); begin += piece) {
      const auto rows_of_piece = of.subspan(begin, std::min(piece, of.size() - begin));
      // Equal ones take turns, by the salt.
      const size_t first = mix64(salt_ + rows_[of.front()].expert) % copies.size();
      ExpertServerWork* least = copies[first];
      for (size_t i = 1; i < copies.size(); ++i) {
        ExpertServerWork* const next = copies[(first + i) % copies.size()];
        if (next->work < least->work) least = next;
      }
      least->work += expert_work(rows_of_piece.size(), 1);
      for (const uint32_t row : rows_of_piece) give(row, least->server, asks);
    }
  }
  for (ExpertAsk& ask : asks) std::sort(ask.rows.begin(), ask.rows.end());
}

std::vector<ExpertAsk> ExpertCall::ask(std::span<const uint32_t> rows, const ExpertServers& servers) {
  std::vector<ExpertAsk> asks;
  for (const uint32_t row : rows) CHECK(states_[row] == State::kMissing);
  if (!servers.work.empty()) {
    ask_by_work(rows, servers, asks);
    return asks;
  }
  for (const uint32_t row : rows) ask_by_share(row, servers, asks);
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

std::vector<ExpertAsk> ExpertCall::give_up(NodeId server, const ExpertServers& servers) {
  std::vector<uint32_t> rows;
  for (uint32_t row = 0; row < rows_.size(); ++row) {
    if (states_[row] == State::kAsked && asked_[row] == server) rows.push_back(row);
  }
  return give_up(server, rows, servers);
}

std::vector<ExpertAsk> ExpertCall::give_up(NodeId server, std::span<const uint32_t> rows, const ExpertServers& servers) {
  std::vector<uint32_t> open;
  for (const uint32_t row : rows) {
    if (row >= rows_.size() || states_[row] != State::kAsked || asked_[row] != server) continue;
    states_[row] = State::kMissing;
    --waiting_, ++missing_;
    open.push_back(row);
  }
  std::vector<NodeId> not_again(servers.suspected.begin(), servers.suspected.end());
  not_again.push_back(server);
  return ask(open, {servers.placement, not_again, servers.work});
}

std::vector<ExpertAsk> ExpertCall::retry(const ExpertServers& servers) { return ask(missing(), servers); }

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

Duration ExpertAnswerTimes::percentile(double q) const {
  const auto beyond = static_cast<uint32_t>((1 - q) * seen_);  // so many took longer
  uint32_t above = 0;
  for (size_t bucket = kBuckets; bucket-- > 0;) {
    above += counts_[bucket];
    if (above > beyond) return from_seconds(std::exp2(static_cast<double>(bucket + 1) / 4) * 1e-6);
  }
  return Duration(0);
}

Duration ExpertAnswerTimes::hedge(Duration least) const { return seen_ < kSeenMin ? Duration::max() : std::max(percentile(0.99), least); }

Duration ExpertAnswerTimes::timeout(Duration least, Duration unknown) const {
  return seen_ < kSeenMin ? unknown : std::clamp(5 * percentile(0.99), least, std::max(least, unknown));
}

}  // namespace shoal
