// Runs scenarios, one per seed: sim_seeds [SCENARIO.json] [--first N] [--count N]. Without a file each seed draws its own
// scenario. Exit 1 at the first violation, with the command that repeats it. The last line sums up what was reached.
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "base/json.h"
#include "sim/scenario_file.h"

namespace {

using shoal::Outcome;
using shoal::Scenario;

constexpr uint64_t kCompareEvery = 50;  // seeds of which one is run twice

struct Arguments {
  std::string file;
  uint64_t first = 1, count = 0;
};

Arguments parse(int argc, char** argv) {
  Arguments a;
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--first") == 0 && i + 1 < argc) {
      a.first = std::strtoull(argv[++i], nullptr, 10);
    } else if (std::strcmp(argv[i], "--count") == 0 && i + 1 < argc) {
      a.count = std::strtoull(argv[++i], nullptr, 10);
    } else {
      a.file = argv[i];
    }
  }
  return a;
}

std::string repetition(const char* program, const Arguments& a, uint64_t seed) {
  return absl::StrCat("repeat with: ", program, a.file.empty() ? "" : " ", a.file, " --first ", seed, " --count 1");
}

// A CHECK ends the process; this is the last thing it says.
char last_words[512];

void say_last_words(int) {
  [[maybe_unused]] const auto written = write(STDOUT_FILENO, last_words, std::strlen(last_words));
}

void remember(const std::string& repetition) { std::snprintf(last_words, sizeof last_words, "%s\n", repetition.c_str()); }

unsigned long count(uint64_t n) { return static_cast<unsigned long>(n); }

}  // namespace

int main(int argc, char** argv) {
  Arguments arguments = parse(argc, argv);
  std::signal(SIGABRT, say_last_words);
  shoal::ScenarioFile file;
  if (!arguments.file.empty()) {
    const auto text = shoal::read_file(arguments.file, 1 << 20);
    const auto parsed = text.ok() ? shoal::parse_scenario(*text) : text.status();
    if (!parsed.ok()) {
      std::printf("%s: %s\n", arguments.file.c_str(), std::string(parsed.status().message()).c_str());
      return 2;
    }
    file = *parsed;
  }
  const bool whole = arguments.count == 0;
  if (whole) arguments.count = arguments.file.empty() ? 1000 : file.seeds;
  Outcome sum;
  for (uint64_t seed = arguments.first; seed < arguments.first + arguments.count; ++seed) {
    Scenario scenario = arguments.file.empty() ? Scenario::random(seed) : file.scenario;
    scenario.seed = seed;
    remember(repetition(argv[0], arguments, seed));
    const Outcome outcome = shoal::run_scenario(scenario);
    if (!outcome.violations.empty()) {
      std::printf("seed %lu: %s\n%s\n", count(seed), outcome.violations.front().c_str(), repetition(argv[0], arguments, seed).c_str());
      return 1;
    }
    if (seed % kCompareEvery == 0 && shoal::run_scenario(scenario).trace_hash != outcome.trace_hash) {
      std::printf("seed %lu: two runs gave different traces\n%s\n", count(seed), repetition(argv[0], arguments, seed).c_str());
      return 1;
    }
    shoal::add_counts(outcome, sum);
  }
  const std::string missing = whole ? shoal::unmet(file, sum) : "";
  std::printf("%lu seeds: %lu requests, %lu finished, %lu cancelled, %lu refused or failed, %lu faults, %lu ends of nodes, %lu preemptions, %lu KV moves "
              "(%lu from another node), %lu requests handed over, %lu nodes balanced, %lu loads, %lu cached tokens, %lu steps in %.0f simulated seconds; no violation\n",
              count(arguments.count), count(sum.requests), count(sum.finished), count(sum.cancelled), count(sum.refused), count(sum.faults),
              count(sum.crashes), count(sum.preemptions), count(sum.copies), count(sum.fetches), count(sum.handovers),
              count(sum.balanced), count(sum.loads), count(sum.prefix_hits), count(sum.steps),
              sum.virtual_seconds);
  for (const auto& [kind, requests] : sum.failures) std::printf("  %6lu failed: %s\n", count(requests), kind.c_str());
  if (!missing.empty()) std::printf("but the scenario did not reach what it is for: %s\n", missing.c_str());
  return missing.empty() ? 0 : 1;
}
