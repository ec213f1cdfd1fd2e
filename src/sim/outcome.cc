#include "sim/outcome.h"

#include <algorithm>
#include <cmath>

namespace shoal {
namespace {

constexpr double kFirst = 1e-6;
const double kLogWidth = std::log(1.02);

}  // namespace

void Histogram::add(double seconds, uint64_t count) {
  const double place = seconds <= kFirst ? 0 : std::log(seconds / kFirst) / kLogWidth;
  buckets_[std::min(static_cast<size_t>(place), kBuckets - 1)] += count;
  count_ += count;
  sum_ += seconds * static_cast<double>(count);
  max_ = std::max(max_, seconds);
}

void Histogram::merge(const Histogram& other) {
  for (size_t i = 0; i < kBuckets; ++i) buckets_[i] += other.buckets_[i];
  count_ += other.count_;
  sum_ += other.sum_;
  max_ = std::max(max_, other.max_);
}

double Histogram::quantile(double share) const {
  if (count_ == 0) return 0;
  const double wanted = share * static_cast<double>(count_);
  double seen = 0;
  for (size_t i = 0; i < kBuckets; ++i) {
    seen += static_cast<double>(buckets_[i]);
    if (buckets_[i] > 0 && seen >= wanted) return std::min(max_, kFirst * std::exp((static_cast<double>(i) + 0.5) * kLogWidth));
  }
  return max_;
}

double Outcome::cost() const {
  double per_hour = 0;
  for (const NodeOutcome& node : nodes) per_hour += node.price_per_hour;
  return per_hour * virtual_seconds / 3600;
}

}  // namespace shoal
