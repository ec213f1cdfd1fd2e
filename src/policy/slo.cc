#include "policy/slo.h"

#include <algorithm>

#include "base/check.h"

namespace shoal {

SloTarget tightened(const SloTarget& target, Duration ttft_max, Duration tbt_max) {
  return {std::min(target.ttft, ttft_max), std::min(target.tbt, tbt_max)};
}

TimePoint deadline(const SloTarget& target, TimePoint arrival, uint64_t k) {
  CHECK_GT(k, 0u);
  const __int128 ticks = static_cast<__int128>(arrival.time_since_epoch().count()) + target.ttft.count() +
                         static_cast<__int128>(k - 1) * target.tbt.count();
  if (ticks >= kForever.time_since_epoch().count()) return kForever;
  return TimePoint(Duration(static_cast<int64_t>(ticks)));
}

Duration slack(const SloTarget& target, TimePoint arrival, uint64_t k, TimePoint now) {
  const __int128 ticks = static_cast<__int128>(deadline(target, arrival, k).time_since_epoch().count()) -
                         now.time_since_epoch().count();
  return Duration(static_cast<int64_t>(std::min<__int128>(ticks, Duration::max().count())));
}

TokenScore::TokenScore(const SloTarget& target, TimePoint arrival)
    : target_(target), arrival_(arrival), last_(arrival), start_(arrival), grace_(target.ttft) {}

void TokenScore::add_token(TimePoint at) {
  CHECK(at >= last_);
  ++tokens_;
  on_time_ += at <= deadline(target_, arrival_, tokens_);
  last_ = at;
  if (at - start_ <= grace_) {
    earned_ = grace_;
  } else {
    earned_before_ += earned_;
    start_ = at;
    earned_ = Duration(0);
  }
  grace_ += target_.tbt;
}

double TokenScore::artifact_fraction() const {
  if (tokens_ == 0) return 0;
  if (last_ == arrival_) return 1;
  return to_seconds(earned_before_ + std::min(grace_, last_ - start_)) / to_seconds(last_ - arrival_);
}

void Attainment::add(const TokenScore& answer, bool finished, uint64_t tokens_wanted) {
  ++requests;
  if (!finished) {
    tokens += std::max<uint64_t>({answer.tokens(), tokens_wanted, 1});
    return;
  }
  tokens += answer.tokens();
  tokens_on_time += answer.on_time();
  requests_on_time += answer.all_on_time();
  request_shares += answer.tokens() == 0 ? 1 : static_cast<double>(answer.on_time()) / static_cast<double>(answer.tokens());
  artifact_fractions += answer.tokens() == 0 ? 1 : answer.artifact_fraction();
}

void Attainment::merge(const Attainment& other) {
  tokens += other.tokens;
  tokens_on_time += other.tokens_on_time;
  requests += other.requests;
  requests_on_time += other.requests_on_time;
  request_shares += other.request_shares;
  artifact_fractions += other.artifact_fractions;
}

namespace {
double share(double part, uint64_t whole) { return whole == 0 ? 1 : part / static_cast<double>(whole); }
}  // namespace

double Attainment::of_tokens() const { return share(static_cast<double>(tokens_on_time), tokens); }
double Attainment::of_tokens_per_request() const { return share(request_shares, requests); }
double Attainment::of_requests() const { return share(static_cast<double>(requests_on_time), requests); }
double Attainment::of_artifact() const { return share(artifact_fractions, requests); }

}  // namespace shoal
