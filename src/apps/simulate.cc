// shoal simulate: the production roles on devices that nobody here has.
#include <chrono>
#include <cstdio>
#include <fstream>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/strings/str_format.h"
#include "apps/bench_flags.h"
#include "apps/expert_report.h"
#include "apps/output_file.h"
#include "apps/progress.h"
#include "apps/signals.h"
#include "apps/simulate_flags.h"
#include "apps/simulate_report.h"
#include "apps/terminal.h"
#include "apps/verbs.h"
#include "base/clock.h"
#include "nlohmann/json.hpp"
#include "replay/record_reader.h"
#include "replay/replay.h"
#include "sim/world.h"

namespace shoal {
namespace {

constexpr size_t kPieceBytes = 1 << 20;  // of a recorded run, read at once
constexpr char kExamples[] =
    "Examples:\n"
    "  shoal simulate --devices 16xH800 --models 70 --request-rate 7 --policy token,paper,request,static\n"
    "  shoal simulate --trace arrivals.csv --profiles profiles.csv --report run.html\n"
    "  shoal simulate --experts losses,afd\n"
    "Every figure is simulated: the roles and policies are those of `shoal serve`, the devices are cost models.";

struct Simulate {
  SimulateFlags flags;
  std::string report, csv, replay, fit;
  std::vector<std::string> experts;  // studies
  bool as_json = false, no_progress = false, costs = false;
  double sample_seconds = 1;
};

StatusOr<SimulatedRun> simulate_one(const Simulate& s, const SimulateInputs& inputs, const RunSpec& spec, std::ofstream* csv) {
  SimulatedRun run{spec.label, spec.policy, s.flags.devices, inputs.models(spec)};
  ASSIGN_OR_RETURN(const auto devices, parse_devices(s.flags.devices));
  ASSIGN_OR_RETURN(WorldSetup setup, inputs.setup(spec, devices));
  const bool drawn = !s.report.empty();
  setup.sample_seconds = drawn || s.as_json ? s.sample_seconds : 0;
  setup.spans_max = drawn ? kSpansKeptMax : 0;
  World world(std::move(setup));
  ProgressLine progress;
  const auto began = steady_now();
  if (csv != nullptr) world.on_end([&](const RequestOutcome& request, const Status&) { *csv << csv_line(run, request); });
  world.on_progress([&](const Outcome& o, double seconds) {
    if (!s.no_progress) {
      progress.show(0, 0, absl::StrFormat("%s, %s: %.0f simulated s, %d requests, %.0f x real time", run.workload, run.policy, seconds, o.requests,
                                          seconds / std::max(1e-9, to_seconds(steady_now() - began))));
    }
    return !wait_stop_signal(Duration(0));
  });
  run.outcome = world.run();
  run.wall_seconds = to_seconds(steady_now() - began);
  progress.clear();
  if (!run.outcome.violations.empty()) {
    return Status(StatusCode::kInternal, absl::StrCat(run.workload, ", ", run.policy, ": ", run.outcome.violations.front()));
  }
  return run;
}

std::string stopped_note(const Simulate& s, const std::vector<SimulatedRun>& runs) {
  const SimulatedRun& last = runs.back();
  std::string out = absl::StrFormat("stopped after %.0f simulated s of %s, %s: its figures are of these, without the requests that had not ended",
                                    last.outcome.virtual_seconds, last.workload, last.policy);
  const size_t all = runs_of(s.flags).size();
  if (runs.size() < all) absl::StrAppendFormat(&out, "; %d of %d runs were not begun", all - runs.size(), all);
  return out;
}

// Every record; one that the end of the file cuts short is where the recording server ended.
Status replay_file(std::istream& file, Replay& replay) {
  RecordReader reader;
  std::vector<char> piece(kPieceBytes);
  while (file.read(piece.data(), kPieceBytes) || file.gcount() > 0) {
    reader.add({piece.data(), static_cast<size_t>(file.gcount())});
    while (true) {
      ASSIGN_OR_RETURN(const std::optional<std::string_view> record, reader.next());
      if (!record) break;
      RETURN_IF_ERROR(annotate(replay.record(*record), absl::StrCat("record ", reader.records())));
    }
  }
  return OkStatus();
}

// What nodes of a real run decided, decided again.
StatusOr<int> replay_run(const std::string& path, const std::string& costs_file) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return not_found(path, ": cannot be read");
  Replay replay;
  std::map<std::string, SeenSteps> seen;
  replay.on_step([&](const std::string& model, const StepInput& input, double seconds) { seen[model].add(input, seconds); });
  RETURN_IF_ERROR(annotate(replay_file(file, replay), path));
  const ReplayCounts& n = replay.counts();
  if (n.events == 0) return invalid_argument(path, ": holds no event; record one with `shoal serve --record-events`");
  show_text(absl::StrFormat("%d events of %d node lives: all %d decisions are the recorded ones, bit for bit and in order "
                            "(%d steps, %d loads, %d drops, %d moves of KV, %d messages)\n",
                            n.events, n.lives, n.effects, n.steps, n.loads, n.drops, n.copies, n.messages));
  if (costs_file.empty()) return kExitOk;
  CostTable costs;
  for (const auto& [model, steps] : seen) {
    const auto fitted = steps.fit();
    if (!fitted.ok()) return annotate(fitted.status(), absl::StrCat(path, ": model '", model, "'"));
    costs.add(model, "cpu", *fitted);
  }
  show_text(costs_table(costs).text(stdout_columns()));
  RETURN_IF_ERROR(write_output(costs_file, costs.to_csv()));
  return kExitOk;
}

StatusOr<int> simulate(const CLI::App& verb, Simulate& s) {
  for (const auto& [flag, path] : {std::pair("--report", s.report), std::pair("--csv", s.csv), std::pair("--fit", s.fit)}) {
    RETURN_IF_ERROR(check_output(flag, path));
  }
  if (!s.replay.empty()) return replay_run(s.replay, s.fit);
  if (!s.experts.empty()) {
    RETURN_IF_ERROR(run_expert_studies(s.experts, s.flags.seed, s.as_json, s.report, shown_settings(verb)));
    return kExitOk;
  }
  if (!s.fit.empty()) return invalid_argument("--fit: needs the run to fit, by --replay");
  ASSIGN_OR_RETURN(const SimulateInputs inputs, SimulateInputs::read(s.flags));
  if (s.costs) {
    show_text(costs_table(inputs.costs()).text(stdout_columns()));
    return kExitOk;
  }
  block_stop_signals();
  std::ofstream csv;
  if (!s.csv.empty()) {
    csv.open(s.csv, std::ios::binary);
    csv << csv_header();
  }
  std::vector<SimulatedRun> runs;
  Table::Lines shown;
  for (const RunSpec& spec : runs_of(s.flags)) {
    ASSIGN_OR_RETURN(SimulatedRun run, simulate_one(s, inputs, spec, s.csv.empty() ? nullptr : &csv));
    if (!s.as_json) {
      shown = simulated_table({run}).lines(stdout_columns());
      show_text((runs.empty() ? shown.heading + "\n" : "") + shown.rows.front() + "\n");
    }
    runs.push_back(std::move(run));
    if (runs.back().outcome.interrupted) break;
  }
  for (const std::string& line : left_out_lines(shown.left_out, stdout_columns())) show_text(line + "\n");
  csv.close();
  if (!s.csv.empty() && !csv) return unavailable("--csv ", s.csv, ": cannot be written to its end; is the disk full?");
  if (s.as_json) show_text(dump_ordered_json(simulated_json(runs), 1) + "\n");
  if (!s.report.empty()) RETURN_IF_ERROR(write_output(s.report, simulated_html(runs, shown_settings(verb))));
  const Outcome& last = runs.back().outcome;
  if (!last.interrupted) return kExitOk;
  note(stopped_note(s, runs));
  return kExitInterrupted;
}

}  // namespace

RunVerb add_simulate(CLI::App& app) {
  CLI::App* verb = app.add_subcommand("simulate", "Run the production roles on simulated devices and a workload");
  auto state = std::make_shared<Simulate>();
  verb->add_option("--devices", state->flags.devices, "Devices: COUNTxKIND, ... of A10, A100, H20, H100, H800, cpu; 8xH800:tp4 are two gangs of four that compute as one")->capture_default_str();
  verb->add_option("--policy", state->flags.policies, "token, paper (its order, turns of 4 s), request, static; several give a row each")
      ->delimiter(',')->capture_default_str();
  add_workload_flags(*verb, state->flags);
  add_cluster_flags(*verb, state->flags);
  verb->add_flag("--costs", state->costs, "Print what steps cost by --profiles, and how well the fit explains them");
  verb->add_flag("--json", state->as_json, "Print JSON instead of the table");
  verb->add_option("--csv", state->csv, "Write one line per request to this file");
  verb->add_option("--report", state->report, "Write a page with plots to this file (HTML)");
  verb->add_option("--sample", state->sample_seconds, "Seconds between the points of time lines")->capture_default_str()->check(CLI::Range(0.01, 1e5));
  verb->add_option("--replay", state->replay, "Instead: tell production nodes what those of a real run were told (`shoal serve --record-events`), and compare every decision");
  verb->add_option("--experts", state->experts, "Instead: experts as services on clusters of H800, beside what was published: way, afd, ratio, load, elastic, price, grow, losses, placement, lanes, transport, batch-rules, or all")
      ->delimiter(',');
  verb->add_option("--fit", state->fit, "With --replay: write what steps took there to this file, for --profiles");
  verb->add_flag("--no-progress", state->no_progress, "Show no progress line");
  verb->footer(kExamples);
  return [verb, state] {
    const auto result = simulate(*verb, *state);
    return result.ok() ? *result : fail(std::string(result.status().message()));
  };
}

}  // namespace shoal
