// shoal plan: how many devices of which kind keep an objective, by simulation, and what they cost.
#include <algorithm>
#include <map>
#include <memory>
#include <string>

#include "CLI/CLI.hpp"
#include "absl/strings/numbers.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "apps/bench_flags.h"
#include "apps/expert_report.h"
#include "apps/output_file.h"
#include "apps/progress.h"
#include "apps/signals.h"
#include "apps/simulate_flags.h"
#include "apps/simulate_report.h"
#include "apps/table.h"
#include "apps/terminal.h"
#include "apps/verbs.h"
#include "nlohmann/json.hpp"
#include "sim/planner.h"
#include "sim/world.h"

namespace shoal {
namespace {

constexpr char kExamples[] =
    "Examples:\n"
    "  shoal plan --models 40 --request-rate 4 --kinds A100,H800,H20\n"
    "  shoal plan --trace arrivals.csv --profiles profiles.csv --kinds H800=3.10,A100=1.90 --goal 0.95 --report plan.html\n"
    "  shoal plan --models 40 --request-rate 4 --devices 16xH800,8xA100\n"
    "  shoal plan --experts 2048,4096,8192 --kinds H800=3.10 --tbt 0.1\n"
    "  shoal plan --models 4 --model-mix qwen2_72b --request-rate 2 --kinds A100,H800 --tbt 0.2\n"
    "Every figure is simulated. A model that no single device can serve gets gangs of 2, 4 or 8 that compute as one (:tp4); prices are list prices per hour unless NAME=PRICE says otherwise.";

constexpr size_t kBarMost = 40, kBesideBars = 16;  // columns; of a price and the gaps
constexpr char kStopped[] = "stopped before the fewest was found";  // of the kind that was searched when Ctrl-C came

struct Plan {
  SimulateFlags flags;
  PlanGoal goal;
  std::vector<std::string> kinds = {"A100", "H20", "H100", "H800"};
  std::vector<std::string> devices;  // that there are, instead of kinds
  std::string report;
  std::vector<uint32_t> experts;         // sequences: plan experts as services
  uint32_t context = 1024;
  bool as_json = false, no_mix = false, no_shapes = false;
  std::vector<Hardware> hardware;        // with the prices asked for; rows refer to them
  std::map<std::string, uint32_t> most;  // devices there are, by kind; none for a kind without a limit of its own
};

PlanGoal goal_of(const Plan& plan, const Hardware& hardware) {
  PlanGoal goal = plan.goal;
  const auto most = plan.most.find(hardware.name);
  if (most != plan.most.end()) goal.devices_max = std::min(goal.devices_max, most->second);
  return goal;
}

// "16xH800" or "16xH800=3.10"; `hardware` is the kind, with its price.
StatusOr<DeviceGroup> group_of(const std::string& item, Hardware& hardware) {
  const size_t equals = item.find('=');
  const auto groups = parse_devices(item.substr(0, equals));
  if (!groups.ok()) return annotate(groups.status(), "--devices");
  hardware = *groups->front().hardware;
  const bool priced = equals == std::string::npos || absl::SimpleAtod(item.substr(equals + 1), &hardware.price_per_hour);
  if (!priced || !(hardware.price_per_hour >= 0)) return invalid_argument("--devices ", item, ": what follows '=' must be a price per hour");
  return groups->front();
}

Status settle_devices(Plan& plan) {
  for (const std::string& item : plan.devices) {
    Hardware hardware;
    ASSIGN_OR_RETURN(const DeviceGroup group, group_of(item, hardware));
    if (group.tensor > 1) return invalid_argument("--devices ", item, ": which gangs compute as one is what a plan finds out; write it without :tp", group.tensor, ", and --tensor-max");
    if (!plan.most.emplace(hardware.name, group.count).second) return invalid_argument("--devices ", item, ": the kind is there twice");
    plan.hardware.push_back(hardware);
  }
  return OkStatus();
}

Status settle_kinds(Plan& plan) {
  if (!plan.devices.empty()) return settle_devices(plan);
  for (const std::string& item : plan.kinds) {
    const size_t equals = item.find('=');
    const Hardware* known = find_hardware(item.substr(0, equals));
    if (known == nullptr) return invalid_argument("--kinds ", item, ": no known device; known are A10, A100, H20, H100, H800, cpu");
    Hardware hardware = *known;
    const bool priced = equals == std::string::npos || absl::SimpleAtod(item.substr(equals + 1), &hardware.price_per_hour);
    if (!priced || !(hardware.price_per_hour >= 0)) return invalid_argument("--kinds ", item, ": write NAME or NAME=PRICE per hour");
    plan.hardware.push_back(hardware);
  }
  return OkStatus();
}

class Simulator {
 public:
  Simulator(const Plan& plan, const SimulateInputs& inputs) : plan_(plan), inputs_(inputs), run_(runs_of(plan.flags).front()) {}

  // Cancelled once Ctrl-C was pressed.
  StatusOr<Outcome> operator()(const std::vector<DeviceGroup>& devices, const PlanShape& shape) {
    if (stopped_) return absl::CancelledError(kStopped);
    ASSIGN_OR_RETURN(WorldSetup setup, inputs_.setup(run_, devices, shape));
    if (tokens_ == 0) RETURN_IF_ERROR(measure(devices));
    setup.late_tokens_max = static_cast<uint64_t>((1 - plan_.goal.attainment) * static_cast<double>(tokens_)) + 1;
    World world(std::move(setup));
    world.on_progress([&](const Outcome& o, double seconds) {
      progress_.show(0, 0, absl::StrFormat("trying %s %s: %.0f simulated s, %d requests", to_string(devices), to_string(shape, devices.front().nodes()), seconds, o.requests));
      return !(stopped_ = wait_stop_signal(Duration(0)));
    });
    Outcome outcome = world.run();
    progress_.clear();
    if (!outcome.violations.empty()) return Status(StatusCode::kInternal, outcome.violations.front());
    if (outcome.interrupted) return absl::CancelledError(kStopped);
    const bool met = !outcome.given_up && outcome.attainment.of_tokens() >= plan_.goal.attainment;
    tried_.push_back({devices, shape, met, outcome});
    return outcome;
  }

  bool stopped() const { return stopped_; }
  // What was tried of one kind alone, for a search that did not get to its end.
  PlanRow unfinished(const Hardware& hardware) const {
    PlanRow row{{&hardware, 1, 1}, {}, SIZE_MAX, kStopped};
    for (const PlanProbe& p : tried_) {
      if (p.devices.size() == 1 && p.devices.front().hardware == &hardware) row.probes.push_back(p);
    }
    return row;
  }

  uint32_t long_prompt() const { return long_prompt_; }
  uint64_t requests() const { return requests_; }
  // The workload's size, and the prompt that nine of ten are shorter than.
  Status measure(const std::vector<DeviceGroup>& devices) {
    ASSIGN_OR_RETURN(const WorldSetup setup, inputs_.setup(run_, devices));
    std::vector<uint32_t> prompts;
    while (const auto arrival = setup.workload->next()) {
      tokens_ += arrival->request.max_tokens;
      prompts.push_back(static_cast<uint32_t>(arrival->request.prompt.size()));
    }
    requests_ = prompts.size();
    if (prompts.empty()) return invalid_argument("the workload holds no request; raise --request-rate or --duration");
    std::sort(prompts.begin(), prompts.end());
    long_prompt_ = prompts[prompts.size() * 9 / 10];
    return OkStatus();
  }

 private:
  const Plan& plan_;
  const SimulateInputs& inputs_;
  const RunSpec run_;
  ProgressLine progress_;
  uint64_t tokens_ = 0, requests_ = 0;
  uint32_t long_prompt_ = 0;
  bool stopped_ = false;
  std::vector<PlanProbe> tried_;
};

// Whether there is a reason that no number of such devices changes, for a row that is infeasible; the row says it.
bool no_number_helps(const Plan& plan, const SimulateInputs& inputs, const Simulator& simulate, PlanRow& row) {
  if (row.probes.empty()) return true;  // a model does not fit
  const auto setup = inputs.setup(runs_of(plan.flags).front(), {row.one});
  const auto mix = inputs.mix(inputs.models(runs_of(plan.flags).front()));
  if (!setup.ok() || !mix.ok()) return false;
  const NodeSpec& node = setup->nodes.front();
  for (size_t i = 0; i < mix->size(); ++i) {
    const double load = node.load_seconds + static_cast<double>(node.load_bytes[i]) / node.load_bytes_per_second;
    const std::string why = out_of_reach(*(*mix)[i], node.steps[i], node.kind, node.config.models[i].pooling.slo, simulate.long_prompt(), load);
    if (why.empty()) continue;
    row.infeasible = why;
    return true;
  }
  return false;
}

// With devices by themselves, or the narrowest gangs that can do where those cannot.
StatusOr<PlanRow> plan_row(const Plan& plan, const SimulateInputs& inputs, Simulator& simulate, const Hardware& hardware) {
  const auto simulated = [&](const std::vector<DeviceGroup>& devices, const PlanShape& shape) { return simulate(devices, shape); };
  PlanRow row;
  const PlanGoal goal = goal_of(plan, hardware);
  for (const uint32_t tensor : kTensorDegrees) {
    if (tensor > std::min(goal.tensor_max, goal.devices_max)) break;
    auto found = plan_kind(hardware, goal, simulated, tensor);
    if (simulate.stopped()) return simulate.unfinished(hardware);
    if (!found.ok()) return found.status();
    row = *std::move(found);
    if (row.feasible() || !no_number_helps(plan, inputs, simulate, row)) break;
  }
  if (!plan.no_shapes && plan.flags.prefill < 0 && plan.flags.rooms == 0 && row.feasible()) {
    const Status shaped = plan_shapes(row, goal, simulated);
    if (!shaped.ok() && !simulate.stopped()) return shaped;
  }
  return row;
}

void add_probe(const PlanProbe& p, const std::string& mark, Table& table) {
  const Outcome& o = p.outcome;
  const Attainment& a = o.attainment;
  double busy = 0;
  for (const NodeOutcome& n : o.nodes) busy += n.busy_seconds;
  busy /= std::max(o.virtual_seconds, 1e-9) * static_cast<double>(o.nodes.size());
  const double price = price_per_hour(p.devices);
  const double rate = o.virtual_seconds > 0 ? static_cast<double>(o.tokens) / o.virtual_seconds : 0;
  const auto figure = [](double value, int digits) { return absl::StrFormat("%.*f", digits, value); };
  table.row({to_string(p), figure(a.of_tokens(), 3), figure(a.of_tokens_per_request(), 3), figure(a.of_requests(), 3), figure(a.of_artifact(), 3),
             figure(o.first_token.quantile(0.5), 2), figure(o.first_token.quantile(0.99), 2), figure(100 * busy, 0) + "%", figure(price, 2),
             figure(rate > 0 ? price / 3600 / rate * 1e6 : 0.0, 2), mark});
}

// The same number of devices, used otherwise.
std::vector<PlanProbe> shapes_beside(const PlanRow& row) {
  std::vector<PlanProbe> out;
  for (size_t i = 0; row.feasible() && i < row.probes.size(); ++i) {
    if (i != row.best && row.probes[i].devices.front().count == row.probes[row.best].devices.front().count) out.push_back(row.probes[i]);
  }
  return out;
}

// Prices as bars, as wide as there is room for.
std::string price_plot(const std::vector<std::pair<std::string, double>>& prices, size_t width) {
  double dearest = 1e-9;
  Table names({{"devices"}, {"$/h", 0, true}, {""}});
  for (const auto& [name, price] : prices) dearest = std::max(dearest, price);
  size_t taken = 0;
  for (const auto& [name, price] : prices) taken = std::max(taken, columns_of(name) + kBesideBars);
  const size_t most = width == 0 ? kBarMost : std::min(kBarMost, width > taken ? width - taken : 0);
  for (const auto& [name, price] : prices) {
    names.row({name, absl::StrFormat("%.2f $/h", price), std::string(static_cast<size_t>(static_cast<double>(most) * price / dearest + 0.5), '#')});
  }
  return absl::StrJoin(names.lines(width).rows, "\n") + "\n";
}

// The workload and the goal.
std::string asked(const Plan& plan, const Simulator& simulate, uint32_t models) {
  const std::string requests = simulate.requests() > 0 ? absl::StrCat(simulate.requests(), " requests, ") : "";
  return absl::StrFormat("%d models, %s%.1f %% of tokens within %.3g s + %.3g s per token", models, requests, 100 * plan.goal.attainment, plan.flags.ttft, plan.flags.tbt);
}

std::string plan_table(const Plan& plan, const Simulator& simulate, uint32_t models, const std::vector<PlanRow>& rows, const std::vector<PlanProbe>& mixes) {
  const size_t width = stdout_columns();
  Table table({{"devices"}, {"tokens", 0, true, 6, true}, {"/req", 6, true, 6}, {"reqs", 4, true, 6}, {"artif.", 7, true, 6}, {"TTFT50", 5, true, 7, true},
               {"TTFT99", 2, true, 7}, {"busy", 3, true, 5, true}, {"$/hour", 0, true, 8, true}, {"$/M tokens", 4, true}, {""}});
  double cheapest = 1e18;
  for (const PlanRow& row : rows) {
    if (row.feasible()) cheapest = std::min(cheapest, row.price_per_hour());
  }
  for (const PlanProbe& mix : mixes) cheapest = std::min(cheapest, price_per_hour(mix.devices));
  std::vector<std::pair<std::string, double>> prices;
  const auto add = [&](const PlanProbe& p) {
    const double price = price_per_hour(p.devices);
    add_probe(p, price == cheapest ? "<- cheapest" : "", table);
    prices.emplace_back(to_string(p), price);
  };
  for (const PlanRow& row : rows) {
    if (row.feasible()) add(row.probes[row.best]);
    for (const PlanProbe& other : shapes_beside(row)) add_probe(other, other.outcome.given_up ? "given up" : other.met ? "" : "not kept", table);
    if (row.feasible()) continue;
    const bool unfinished = row.infeasible == kStopped;
    for (size_t i = 0; unfinished && i < row.probes.size(); ++i) add_probe(row.probes[i], row.probes[i].met ? "" : "not kept", table);
    table.row({row.one.hardware->name, (unfinished ? "" : "not feasible: ") + row.infeasible});
  }
  for (const PlanProbe& mix : mixes) add(mix);
  const std::string out = absl::StrJoin(wrap_text("SIMULATED plan: " + asked(plan, simulate, models), width, 2), "\n") + "\n" + table.text(width);
  return prices.empty() ? out : out + "\n" + price_plot(prices, width);
}

OrderedJson plan_json(const std::vector<PlanRow>& rows, const std::vector<PlanProbe>& mixes) {
  OrderedJson all = OrderedJson::array();
  const auto probe_json = [](const PlanProbe& p) {
    return OrderedJson{{"devices", to_string(p.devices)}, {"shape", to_string(p.shape, p.devices.front().nodes())}, {"met", p.met}, {"given_up", p.outcome.given_up}, {"tokens_on_time", p.outcome.attainment.of_tokens()},
                       {"requests_on_time", p.outcome.attainment.of_requests()}, {"ttft_p99_s", p.outcome.first_token.quantile(0.99)},
                       {"price_per_hour", price_per_hour(p.devices)}};
  };
  for (const PlanRow& row : rows) {
    OrderedJson one = {{"simulated", true}, {"kind", row.one.hardware->name}, {"feasible", row.feasible()}};
    if (row.feasible()) one["best"] = probe_json(row.probes[row.best]);
    if (!row.feasible()) one["why"] = row.infeasible;
    one["probes"] = OrderedJson::array();
    for (const PlanProbe& p : row.probes) one["probes"].push_back(probe_json(p));
    all.push_back(std::move(one));
  }
  for (const PlanProbe& mix : mixes) all.push_back({{"simulated", true}, {"kind", "mix"}, {"feasible", true}, {"best", probe_json(mix)}});
  return all;
}

StatusOr<int> make_plan(const CLI::App& verb, Plan& plan) {
  RETURN_IF_ERROR(check_output("--report", plan.report));
  if (!plan.experts.empty()) {
    RETURN_IF_ERROR(plan_experts(plan.experts, verb.get_option("--kinds")->empty() ? "H800" : plan.kinds.front(), plan.context, plan.flags.tbt, plan.as_json, plan.report, shown_settings(verb)));
    return kExitOk;
  }
  RETURN_IF_ERROR(settle_kinds(plan));
  ASSIGN_OR_RETURN(const SimulateInputs inputs, SimulateInputs::read(plan.flags));
  const uint32_t models = inputs.models(runs_of(plan.flags).front());
  Simulator simulate(plan, inputs);
  const auto simulated = [&](const std::vector<DeviceGroup>& devices, const PlanShape& shape) { return simulate(devices, shape); };
  std::vector<PlanRow> rows;
  block_stop_signals();
  for (const Hardware& hardware : plan.hardware) {
    ASSIGN_OR_RETURN(PlanRow row, plan_row(plan, inputs, simulate, hardware));
    rows.push_back(std::move(row));
  }
  std::vector<PlanProbe> mixes;
  const auto cheapest = std::min_element(rows.begin(), rows.end(), [](const PlanRow& a, const PlanRow& b) {
    return (a.feasible() ? a.price_per_hour() : 1e18) < (b.feasible() ? b.price_per_hour() : 1e18);
  });
  for (const PlanRow& row : rows) {
    if (plan.no_mix || cheapest == rows.end() || !cheapest->feasible() || &row == &*cheapest) continue;
    if (auto mix = plan_mix(*cheapest, row, goal_of(plan, *row.one.hardware), simulated); mix.ok()) mixes.push_back(*std::move(mix));
  }
  show_text(plan.as_json ? dump_ordered_json(plan_json(rows, mixes), 1) + "\n" : plan_table(plan, simulate, models, rows, mixes));
  if (!plan.report.empty()) RETURN_IF_ERROR(write_output(plan.report, planned_html({asked(plan, simulate, models), plan.goal.attainment, rows, mixes, shown_settings(verb), simulate.stopped()})));
  if (simulate.stopped()) {
    note("stopped: the figures are of the choices that were tried so far");
    return kExitInterrupted;
  }
  return cheapest != rows.end() && cheapest->feasible() ? kExitOk : kExitFailed;
}

}  // namespace

RunVerb add_plan(CLI::App& app) {
  CLI::App* verb = app.add_subcommand("plan", "How many devices of which kind keep an objective, by simulation");
  auto state = std::make_shared<Plan>();
  auto* kinds = verb->add_option("--kinds", state->kinds, "Kinds of devices to consider, each NAME or NAME=PRICE per hour")->delimiter(',')->capture_default_str();
  verb->add_option("--devices", state->devices, "Devices there are, as for `shoal simulate`: COUNTxKIND, or COUNTxKIND=PRICE; of each kind no more are considered")
      ->delimiter(',')->excludes(kinds);
  verb->add_option("--goal", state->goal.attainment, "Share of tokens that must be on time")->capture_default_str()->check(CLI::Range(0.01, 1.0));
  verb->add_option("--devices-max", state->goal.devices_max, "Most devices to consider")->capture_default_str()->check(CLI::Range(1u, 4096u));
  verb->add_option("--tensor-max", state->goal.tensor_max, "Widest gang of devices that compute as one")->capture_default_str()->check(CLI::IsMember({1u, 2u, 4u, 8u}));
  verb->add_flag("--no-mix", state->no_mix, "Consider one kind at a time only");
  verb->add_flag("--no-shapes", state->no_shapes, "Do not try other partitions into prompts and answers, fewer models at once, and wider gangs");
  verb->add_option("--experts", state->experts, "Instead: DeepSeek-V3 for so many sequences at once, as experts as services and as whole groups, on the first of --kinds (H800, H200, H20), a token within --tbt")
      ->delimiter(',')->check(CLI::Range(1u, 65'536u));
  verb->add_option("--context", state->context, "With --experts: tokens of a sequence")->capture_default_str()->check(CLI::Range(1u, 1'000'000u));
  add_workload_flags(*verb, state->flags);
  add_cluster_flags(*verb, state->flags);
  verb->add_flag("--json", state->as_json, "Print JSON instead of the table");
  verb->add_option("--report", state->report, "Write a page with a plot to this file (HTML)");
  verb->footer(kExamples);
  return [verb, state] {
    const auto result = make_plan(*verb, *state);
    return result.ok() ? *result : fail(std::string(result.status().message()));
  };
}

}  // namespace shoal
