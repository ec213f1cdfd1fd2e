// Runs random scenarios, one per seed: seeds [--first N] [--count N]. Exit 1 at the first violation, with the command
// that repeats it. The last line sums up what the scenarios reached.
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "sim/scenario.h"

int main(int argc, char** argv) {
  uint64_t first = 1, count = 1000;
  for (int i = 1; i + 1 < argc; i += 2) {
    if (std::strcmp(argv[i], "--first") == 0) first = std::strtoull(argv[i + 1], nullptr, 10);
    if (std::strcmp(argv[i], "--count") == 0) count = std::strtoull(argv[i + 1], nullptr, 10);
  }
  shoal::Outcome sum;
  for (uint64_t seed = first; seed < first + count; ++seed) {
    const shoal::Scenario scenario = shoal::Scenario::random(seed);
    const shoal::Outcome outcome = shoal::run_scenario(scenario);
    if (!outcome.violations.empty()) {
      std::printf("seed %lu: %s\nrepeat with: %s --first %lu --count 1\n", static_cast<unsigned long>(seed),
                  outcome.violations.front().c_str(), argv[0], static_cast<unsigned long>(seed));
      return 1;
    }
    if (seed % 100 == 0 && shoal::run_scenario(scenario).trace_hash != outcome.trace_hash) {
      std::printf("seed %lu: two runs gave different traces\n", static_cast<unsigned long>(seed));
      return 1;
    }
    sum.finished += outcome.finished;
    sum.cancelled += outcome.cancelled;
    sum.refused += outcome.refused;
    sum.preemptions += outcome.preemptions;
    sum.loads += outcome.loads;
    sum.copies += outcome.copies;
    sum.fetches += outcome.fetches;
    sum.handovers += outcome.handovers;
    sum.balanced += outcome.balanced;
    sum.crashes += outcome.crashes;
    sum.steps += outcome.steps;
    sum.prefix_hits += outcome.prefix_hits;
    sum.virtual_seconds += outcome.virtual_seconds;
  }
  std::printf("%lu seeds: %lu finished, %lu cancelled, %lu refused or failed, %lu preemptions, %lu KV moves (%lu from another node), %lu requests handed over, %lu nodes balanced, %lu loads, %lu crashes, "
              "%lu cached tokens, %lu steps in %.0f simulated seconds; no violation\n",
              static_cast<unsigned long>(count), static_cast<unsigned long>(sum.finished),
              static_cast<unsigned long>(sum.cancelled), static_cast<unsigned long>(sum.refused),
              static_cast<unsigned long>(sum.preemptions), static_cast<unsigned long>(sum.copies),
              static_cast<unsigned long>(sum.fetches), static_cast<unsigned long>(sum.handovers), static_cast<unsigned long>(sum.balanced),
              static_cast<unsigned long>(sum.loads),
              static_cast<unsigned long>(sum.crashes), static_cast<unsigned long>(sum.prefix_hits),
              static_cast<unsigned long>(sum.steps), sum.virtual_seconds);
  return 0;
}
