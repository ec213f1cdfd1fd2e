// Worlds of experts with random shapes and faults, one per seed: sim_experts [--first N] [--count N]. Exit 1 at the first
// violation, with the command that repeats it. The last line sums up what was reached.
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "sim/expert_world.h"

int main(int argc, char** argv) {
  uint64_t first = 1, count = 500;
  for (int i = 1; i + 1 < argc; i += 2) {
    if (std::strcmp(argv[i], "--first") == 0) first = std::strtoull(argv[i + 1], nullptr, 10);
    else if (std::strcmp(argv[i], "--count") == 0) count = std::strtoull(argv[i + 1], nullptr, 10);
  }
  shoal::ExpertWorldOutcome sum;
  for (uint64_t seed = first; seed < first + count; ++seed) {
    const auto o = shoal::run_experts(shoal::random_expert_world(seed));
    if (!o.violations.empty()) {
      std::printf("seed %llu: %s\nrepeat with: %s --first %llu --count 1\n", static_cast<unsigned long long>(seed), o.violations.front().c_str(), argv[0], static_cast<unsigned long long>(seed));
      return 1;
    }
    sum.passes += o.passes, sum.rows += o.rows, sum.resent_rows += o.resent_rows, sum.deferred += o.deferred, sum.late_answers += o.late_answers, sum.torn += o.torn;
    sum.not_hosted += o.not_hosted, sum.copies += o.copies, sum.versions += o.versions, sum.virtual_seconds += o.virtual_seconds;
  }
  const auto n = [](uint64_t x) { return static_cast<unsigned long long>(x); };
  std::printf("%llu seeds: %llu passes, %llu rows, of which %llu were asked again; %llu layers waited for an expert, %llu late answers, %llu torn reads, %llu asked of who no longer had it, "
              "%llu experts copied, %llu placements in %.0f simulated seconds; no violation\n",
              n(count), n(sum.passes), n(sum.rows), n(sum.resent_rows), n(sum.deferred), n(sum.late_answers), n(sum.torn), n(sum.not_hosted), n(sum.copies), n(sum.versions), sum.virtual_seconds);
  return sum.resent_rows > 0 ? 0 : 1;
}
