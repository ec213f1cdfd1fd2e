#include "policy/cohorts.h"

#include <algorithm>
#include <limits>

namespace shoal {
namespace {

constexpr double kTiny = 1e-9;

}  // namespace

void Cohorts::add(const Cohort& cohort) {
  const auto waits = [](const Cohort& c) { return c.prompt_seconds > 0; };
  if (cohort.requests < kTiny) return;
  Cohort* first = begin();  // of its kind
  if (waits(cohort)) first = std::find_if(begin(), end(), waits);
  Cohort* last = waits(cohort) ? end() : std::find_if(begin(), end(), waits);
  Cohort* const at = std::find_if(first, last, [&](const Cohort& c) { return c.due > cohort.due; });
  std::move_backward(at, end(), end() + 1);
  *at = cohort;
  ++count_, ++last;
  if (static_cast<size_t>(last - first) <= kOfKind) return;
  Cohort* alike = first;
  double least = std::numeric_limits<double>::infinity();
  for (Cohort* c = first; c + 1 < last; ++c) {
    const double apart = c[1].due - c->due, differs = apart * apart * c->requests * c[1].requests / (c->requests + c[1].requests);
    if (differs < least) least = differs, alike = c;
  }
  const double share = alike[1].requests / (alike->requests + alike[1].requests);
  const auto mix = [share](double a, double b) { return a + share * (b - a); };
  const double apart = alike[1].left - alike->left, variance = mix(alike->spread * alike->spread, alike[1].spread * alike[1].spread) + share * (1 - share) * apart * apart;
  *alike = {alike->requests + alike[1].requests, mix(alike->due, alike[1].due), mix(alike->left, alike[1].left), mix(alike->prompt_seconds, alike[1].prompt_seconds), std::sqrt(variance)};
  std::move(alike + 2, end(), alike + 1);
  --count_;
}

void Cohorts::remove_empty() {
  count_ = static_cast<size_t>(std::remove_if(begin(), end(), [](const Cohort& c) { return c.requests < kTiny || c.left < kTiny; }) - begin());
}

}  // namespace shoal
