// When a token is due, and how many were on time. Pure values; "time" is what the caller says.
#pragma once

#include <cstdint>

#include "base/pooling_settings.h"
#include "base/time.h"

namespace shoal {

// The stricter of two, word for word.
SloTarget tightened(const SloTarget& target, Duration ttft_max, Duration tbt_max);

// Token k (1-based) is due at arrival + ttft + (k - 1) * tbt: time that was not used is carried over, because a reader
// buffers. kForever if that is beyond the time line. REQUIRES: k > 0.
TimePoint deadline(const SloTarget& target, TimePoint arrival, uint64_t k);
// Until token k is due; negative when it is late.
Duration slack(const SloTarget& target, TimePoint arrival, uint64_t k, TimePoint now);

// The tokens of one answer against their deadlines. A few words, however long the answer.
class TokenScore {
 public:
  TokenScore(const SloTarget& target, TimePoint arrival);

  void add_token(TimePoint at);  // REQUIRES: not before the token before it

  uint64_t tokens() const { return tokens_; }
  uint64_t on_time() const { return on_time_; }
  bool all_on_time() const { return on_time_ == tokens_; }
  // The share of time, not of tokens, that the artifact of Aegaeon (SOSP'25) reports: after a late token the reader starts
  // anew there with all the grace granted so far, so it is lenient. Only for comparison with the paper.
  double artifact_fraction() const;

 private:
  SloTarget target_;
  TimePoint arrival_;
  uint64_t tokens_ = 0;
  uint64_t on_time_ = 0;
  TimePoint last_;
  TimePoint start_;       // of the stretch under way
  Duration grace_;        // the artifact's running target
  Duration earned_{0};    // by the stretch under way, when the next token is late
  Duration earned_before_{0};
};

// Attainment of many answers; the sum of two is that of both sets. An answer that failed or never finished counts as
// nothing on time in all four figures.
struct Attainment {
  uint64_t tokens = 0;
  uint64_t tokens_on_time = 0;
  uint64_t requests = 0;
  uint64_t requests_on_time = 0;    // with every token on time
  double request_shares = 0;        // sum over requests of their share of tokens on time
  double artifact_fractions = 0;

  // `tokens_wanted`: of a failed answer, how many it should have had, if known.
  void add(const TokenScore& answer, bool finished, uint64_t tokens_wanted = 0);
  void merge(const Attainment& other);

  // (a) share of tokens on time, pooled; (b) its mean per request; (c) share of requests with every token on time;
  // (d) the artifact's figure. All are 1 when there was nothing to be late.
  double of_tokens() const;
  double of_tokens_per_request() const;
  double of_requests() const;
  double of_artifact() const;

  friend bool operator==(const Attainment&, const Attainment&) = default;
};

}  // namespace shoal
