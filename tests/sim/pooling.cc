// What scheduling by turns is worth, and each of its options: twelve models on a device for one or two of them, in the
// simulator. pooling [--seeds N]. A load takes 0.3 s, a step some 12 ms; answers have 150 tokens in the mean.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "sim/scenario.h"

namespace {

using shoal::Scenario;
using shoal::Scheduling;
using shoal::TurnOptions;

Scenario scenario(uint64_t seed, uint32_t places, double requests_per_second) {
  Scenario s;
  s.seed = seed;
  s.models = 12;
  s.weight_pages = 30;
  s.kv_block_bytes = shoal::kPageBytes / 8;
  s.pages = places * s.weight_pages + 60;
  s.host_pages = 600;
  s.max_model_len = 512;
  s.requests = 120;
  s.requests_per_second = requests_per_second;
  s.prompt_max = 100;
  s.output_max = 300;
  s.cancel_probability = s.deadline_probability = 0;
  s.limits = {256, 32, 32, true};
  s.cost.step_seconds = 0.010;
  s.cost.row_seconds = 0.0002;
  s.cost.load_bytes_per_second = s.weight_pages * static_cast<double>(shoal::kPageBytes) / 0.3;
  return s;
}

bool print_row(const char* name, Scheduling scheduling, const TurnOptions& turns, uint32_t places, double rate, uint64_t seeds) {
  shoal::Attainment sum;
  double first = 0, gap = 0;
  uint64_t loads = 0;
  for (uint64_t seed = 1; seed <= seeds; ++seed) {
    Scenario s = scenario(seed, places, rate);
    s.scheduling = scheduling;
    s.turns = turns;
    const shoal::Outcome outcome = shoal::run_scenario(s);
    if (!outcome.violations.empty()) {
      std::printf("%s, seed %lu: %s\n", name, static_cast<unsigned long>(seed), outcome.violations.front().c_str());
      return false;
    }
    sum.merge(outcome.attainment);
    first = std::max(first, outcome.first_token_seconds_max);
    gap = std::max(gap, outcome.gap_seconds_max);
    loads += outcome.loads;
  }
  std::printf("%-22s %7.3f %9.3f %9.3f %9.3f %11.1f %9.1f %7lu\n", name, sum.of_tokens(), sum.of_tokens_per_request(),
              sum.of_requests(), sum.of_artifact(), first, gap, static_cast<unsigned long>(loads));
  return true;
}

bool print_table(uint32_t places, double rate, uint64_t seeds) {
  std::printf("\nroom for %u of 12 models, %.1f requests/s\n%-22s %7s %9s %9s %9s %11s %9s %7s\n", places, rate, "", "tokens",
              "per req.", "requests", "artifact", "TTFT max s", "gap max s", "loads");
  struct Row {
    const char* name;
    Scheduling scheduling;
    TurnOptions turns;
  };
  Row rows[] = {{"token", Scheduling::kToken, {}},         {"- least slack first", Scheduling::kToken, {}},
                {"- enter running round", Scheduling::kToken, {}}, {"- early end", Scheduling::kToken, {}},
                {"- recompute", Scheduling::kToken, {}},   {"- cover switch", Scheduling::kToken, {}},
                {"QMAX 4 s", Scheduling::kToken, {}},      {"paper", Scheduling::kToken, TurnOptions::paper()},
                {"request", Scheduling::kRequest, {}}};
  rows[1].turns.least_slack_first = false;
  rows[2].turns.enter_running_round = false;
  rows[3].turns.end_early = false;
  rows[4].turns.recompute = false;
  rows[5].turns.cover_switch = false;
  rows[6].turns.quota_max_seconds = 4;
  return std::all_of(std::begin(rows), std::end(rows),
                     [&](const Row& r) { return print_row(r.name, r.scheduling, r.turns, places, rate, seeds); });
}

}  // namespace

int main(int argc, char** argv) {
  uint64_t seeds = 6;
  for (int i = 1; i + 1 < argc; i += 2) {
    if (std::strcmp(argv[i], "--seeds") == 0) seeds = std::strtoull(argv[i + 1], nullptr, 10);
  }
  const bool ok = print_table(1, 1.2, seeds) && print_table(2, 1.6, seeds) && print_table(2, 2.2, seeds);
  return ok ? 0 : 1;
}
