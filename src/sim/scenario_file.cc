#include "sim/scenario_file.h"

#include <algorithm>
#include <functional>
#include <limits>

#include "base/json.h"
#include "nlohmann/json.hpp"

namespace shoal {
namespace {

const std::map<std::string, Fault::Kind, std::less<>> kKinds = {
    {"crash", Fault::Kind::kCrash},         {"pause", Fault::Kind::kPause},         {"partition", Fault::Kind::kPartition},
    {"loss_to", Fault::Kind::kLossTo},      {"loss_from", Fault::Kind::kLossFrom},  {"loss", Fault::Kind::kLoss},
    {"reorder", Fault::Kind::kReorder},     {"duplicate", Fault::Kind::kDuplicate}, {"delay", Fault::Kind::kDelay},
    {"slow_disk", Fault::Kind::kSlowDisk},  {"load_failure", Fault::Kind::kLoadFailure},
    {"lease_loss", Fault::Kind::kLeaseLoss}, {"notice", Fault::Kind::kNotice},
    {"apart", Fault::Kind::kApart},         {"defer", Fault::Kind::kDefer},
    {"stream_lost", Fault::Kind::kStreamLost}, {"gateway_crash", Fault::Kind::kGatewayCrash},
    {"controller_crash", Fault::Kind::kControllerCrash}};

// What a figure of `expect` looks at.
using Figure = double (*)(const Outcome&);
const std::map<std::string, Figure> kFigures = {
    {"finished", [](const Outcome& o) { return static_cast<double>(o.finished); }},
    {"finished_share", [](const Outcome& o) { return static_cast<double>(o.finished) / static_cast<double>(std::max<uint64_t>(o.requests - o.cancelled, 1)); }},
    {"refused", [](const Outcome& o) { return static_cast<double>(o.refused); }},
    {"cancelled", [](const Outcome& o) { return static_cast<double>(o.cancelled); }},
    {"crashes", [](const Outcome& o) { return static_cast<double>(o.crashes); }},
    {"faults", [](const Outcome& o) { return static_cast<double>(o.faults); }},
    {"admin_changes", [](const Outcome& o) { return static_cast<double>(o.admin_changes); }},
    {"admin_failures", [](const Outcome& o) { return static_cast<double>(o.admin_failures); }},
    {"steps_deferred", [](const Outcome& o) { return static_cast<double>(o.steps_deferred); }},
    {"loads", [](const Outcome& o) { return static_cast<double>(o.loads); }},
    {"handovers", [](const Outcome& o) { return static_cast<double>(o.handovers); }},
    {"kv_fetches", [](const Outcome& o) { return static_cast<double>(o.fetches); }},
    {"balanced", [](const Outcome& o) { return static_cast<double>(o.balanced); }},
    {"kv_moves", [](const Outcome& o) { return static_cast<double>(o.copies); }},
    {"preemptions", [](const Outcome& o) { return static_cast<double>(o.preemptions); }},
    {"prefix_hits", [](const Outcome& o) { return static_cast<double>(o.prefix_hits); }},
    {"tokens_on_time", [](const Outcome& o) { return o.attainment.of_tokens(); }},
    {"first_token_seconds", [](const Outcome& o) { return o.first_token_seconds_max; }}};

// Reads the members of one object; what is left over was a mistake.
class Reader {
 public:
  Reader(const Json& object, std::string where) : object_(object), where_(std::move(where)) {
    if (!object_.is_object()) fail("is not an object");
  }

  template <typename T>
  void number(const char* key, T& out, double min, double max) {
    const Json* value = find(key);
    if (value == nullptr) return;
    if (!value->is_number()) return fail(absl::StrCat("'", key, "' is not a number"));
    const double x = value->get<double>();
    if (!(x >= min && x <= max)) return fail(absl::StrCat("'", key, "' is ", x, ", not within ", min, " and ", max));
    out = static_cast<T>(x);
  }
  void seconds(const char* key, Duration& out) {
    double x = -1;
    number(key, x, 0, 1e6);
    if (x >= 0) out = from_seconds(x);
  }
  void flag(const char* key, bool& out) {
    const Json* value = find(key);
    if (value == nullptr) return;
    if (!value->is_boolean()) return fail(absl::StrCat("'", key, "' is neither true nor false"));
    out = value->get<bool>();
  }
  // Times by their names with "_s" behind, for they are seconds.
  void pooling(PoolingSettings& out) {
    for (const PoolingField& field : pooling_fields()) {
      std::string key = absl::StrCat(field.key, field.is_time() ? "_s" : "");
      std::replace(key.begin(), key.end(), '-', '_');
      double said = std::numeric_limits<double>::quiet_NaN();
      bool on = value_of(field, out) != 0;
      if (field.is_switch()) {
        flag(key.c_str(), on);
        said = on ? 1 : 0;
      } else {
        number(key.c_str(), said, field.is_time() ? 0 : field.min, field.is_time() ? 1e6 : field.max);
      }
      if (!std::isnan(said)) set_said(field, said, out);
    }
  }
  void text(const char* key, std::string& out) {
    const Json* value = find(key);
    if (value == nullptr) return;
    if (!value->is_string()) return fail(absl::StrCat("'", key, "' is not a text"));
    out = value->get<std::string>();
  }
  const Json* find(const char* key) {
    known_.push_back(key);
    const auto found = object_.is_object() ? object_.find(key) : object_.end();
    return found == object_.end() ? nullptr : &*found;
  }
  void fail(const std::string& why) {
    if (status_.ok()) status_ = invalid_argument(where_, ": ", why);
  }
  Status done() {
    for (const auto& [key, value] : object_.items()) {
      if (status_.ok() && std::find(known_.begin(), known_.end(), key) == known_.end()) fail(absl::StrCat("'", key, "' is not known here"));
    }
    return status_;
  }

 private:
  const Json& object_;
  const std::string where_;
  std::vector<std::string> known_;
  Status status_;
};

Status read_cluster(const Json& json, Scenario& s) {
  Reader r(json, "cluster");
  std::string scheduling = "token", turns = "ours";
  r.number("nodes", s.nodes, 1, 100);
  r.number("gateways", s.gateways, 1, 100);
  r.number("prefill_nodes", s.prefill_nodes, 0, s.nodes);
  r.number("models", s.models, 1, 1000);
  r.number("pages", s.pages, 4, 100'000);
  r.number("host_pages", s.host_pages, 0, 100'000);
  r.number("weight_pages", s.weight_pages, 0, 10'000);
  r.number("kv_block_bytes", s.kv_block_bytes, 0, 1e9);
  r.number("state_blocks", s.state_blocks, 0, 1000);
  r.number("max_model_len", s.max_model_len, 32, 100'000);
  r.number("tokens_per_step", s.limits.tokens_per_step, 1, 1e6);
  r.number("sequences_max", s.limits.sequences_max, 1, 1e5);
  r.number("step_seconds", s.cost.step_seconds, 0, 100);
  r.number("row_seconds", s.cost.row_seconds, 0, 100);
  r.number("load_bytes_per_second", s.cost.load_bytes_per_second, 1, 1e13);
  r.number("copy_bytes_per_second", s.cost.copy_bytes_per_second, 1, 1e13);
  r.flag("adopt_weights", s.adopt_weights);
  r.flag("one_memory", s.one_memory);
  r.flag("prefix_cache", s.prefix_cache);
  r.flag("through_codec", s.through_codec);
  r.text("scheduling", scheduling);
  r.text("turns", turns);
  r.pooling(s.pooling);
  s.limits.logit_rows_max = s.limits.sequences_max;
  s.scheduling = scheduling == "request" ? Scheduling::kRequest : scheduling == "static" ? Scheduling::kStatic : Scheduling::kToken;
  if (s.scheduling == Scheduling::kToken && scheduling != "token") r.fail(absl::StrCat("'scheduling' is '", scheduling, "', not token, request or static"));
  if (turns != "ours" && turns != "paper") r.fail(absl::StrCat("'turns' is '", turns, "', not ours or paper"));
  if (turns == "paper") s.turns = TurnOptions::paper();
  return r.done();
}

Status read_workload(const Json& json, Scenario& s) {
  Reader r(json, "workload");
  r.number("requests", s.requests, 1, 1e6);
  r.number("payers", s.payers, 0, 1000);
  r.number("first_weight", s.first_weight, 1, Payer::kWeightMax);
  r.number("flood", s.flood, 0, 1);
  r.number("requests_per_second", s.requests_per_second, 1e-3, 1e6);
  r.number("prompt_max", s.prompt_max, 1, 1e5);
  r.number("output_max", s.output_max, 1, 1e5);
  r.number("cancel_probability", s.cancel_probability, 0, 1);
  r.number("deadline_probability", s.deadline_probability, 0, 1);
  r.number("shared_prefix_probability", s.shared_prefix_probability, 0, 1);
  return r.done();
}

Status read_kind(Reader& r, const std::string& name, Fault::Kind& out) {
  const auto kind = fault_kind(name);
  if (!kind.ok()) r.fail(std::string(kind.status().message()));
  if (kind.ok()) out = *kind;
  return OkStatus();
}

StatusOr<Fault> read_fault(const Json& json, const Scenario& s) {
  Reader r(json, "faults");
  Fault fault;
  std::string kind;
  Duration at{0};
  r.text("kind", kind);
  r.number("node", fault.node, 0, std::max(s.nodes, s.gateways) - 1);
  r.number("peer", fault.peer, 0, std::max(s.nodes, s.gateways) - 1);
  r.number("amount", fault.amount, 0, 1e3);
  r.seconds("at_s", at);
  r.seconds("lasts_s", fault.lasts);
  RETURN_IF_ERROR(read_kind(r, kind, fault.kind));
  fault.at = TimePoint(at);
  const bool of_gateway = fault.kind == Fault::Kind::kGatewayCrash;
  if (fault.node >= (of_gateway ? s.gateways : s.nodes)) r.fail(absl::StrCat("there is no ", of_gateway ? "gateway " : "node ", fault.node));
  if (fault.kind == Fault::Kind::kStreamLost && fault.peer >= s.gateways) r.fail(absl::StrCat("there is no gateway ", fault.peer));
  if (fault.kind == Fault::Kind::kApart && fault.peer >= s.nodes) r.fail(absl::StrCat("there is no node ", fault.peer));
  if (fault.kind == Fault::Kind::kApart && fault.peer == fault.node) r.fail("'apart' needs a 'peer' that is another node");
  RETURN_IF_ERROR(r.done());
  return fault;
}

Status read_random_faults(const Json& json, Scenario& s) {
  Reader r(json, "random_faults");
  r.number("per_second", s.faults_per_second, 0, 100);
  s.fault_kinds.clear();
  const Json* kinds = r.find("kinds");
  if (kinds == nullptr || !kinds->is_array() || kinds->empty()) r.fail("'kinds' is not a list of kinds");
  for (const Json& name : kinds != nullptr && kinds->is_array() ? *kinds : Json::array()) {
    Fault::Kind kind{};
    RETURN_IF_ERROR(read_kind(r, name.is_string() ? name.get<std::string>() : "", kind));
    s.fault_kinds.push_back(kind);
  }
  return r.done();
}

Status read_expect(const Json& json, ScenarioFile& file) {
  Reader r(json, "expect");
  for (const auto& [figure, read] : kFigures) {
    for (const char* bound : {"_min", "_max"}) {
      const std::string key = figure + bound;
      double value = std::numeric_limits<double>::quiet_NaN();
      r.number(key.c_str(), value, 0, 1e12);
      if (value == value) file.expect[key] = value;
    }
  }
  return r.done();
}

}  // namespace

StatusOr<Fault::Kind> fault_kind(std::string_view name) {
  const auto found = kKinds.find(name);
  if (found != kKinds.end()) return found->second;
  std::string known;
  for (const auto& [kind, value] : kKinds) absl::StrAppend(&known, known.empty() ? "" : ", ", kind);
  return invalid_argument("'", std::string(name), "' is no kind of fault; known are ", known);
}

StatusOr<ScenarioFile> parse_scenario(std::string_view text) {
  ASSIGN_OR_RETURN(const Json json, parse_json(text, {.bytes_max = 1 << 20, .depth_max = 8, .values_max = 100'000}));
  ScenarioFile file;
  file.scenario.cancel_probability = file.scenario.deadline_probability = 0;
  Reader r(json, "scenario");
  r.text("about", file.about);
  r.number("seeds", file.seeds, 1, 1e6);
  if (const Json* part = r.find("cluster")) RETURN_IF_ERROR(read_cluster(*part, file.scenario));
  if (const Json* part = r.find("workload")) RETURN_IF_ERROR(read_workload(*part, file.scenario));
  if (const Json* part = r.find("random_faults")) RETURN_IF_ERROR(read_random_faults(*part, file.scenario));
  if (const Json* part = r.find("expect")) RETURN_IF_ERROR(read_expect(*part, file));
  r.number("admin_changes", file.scenario.admin_changes, 0, 1000);
  r.number("load_failure_probability", file.scenario.load_failure_probability, 0, 1);
  if (const Json* faults = r.find("faults")) {
    if (!faults->is_array()) r.fail("'faults' is not a list");
    for (const Json& fault : faults->is_array() ? *faults : Json::array()) {
      ASSIGN_OR_RETURN(Fault read, read_fault(fault, file.scenario));
      file.scenario.faults.push_back(read);
    }
  }
  RETURN_IF_ERROR(r.done());
  return file;
}

std::string unmet(const ScenarioFile& file, const Outcome& sum) {
  for (const auto& [key, wanted] : file.expect) {
    const bool least = key.ends_with("_min");
    const double seen = kFigures.at(key.substr(0, key.size() - 4))(sum);
    if (least ? seen < wanted : seen > wanted) return absl::StrCat(key, " is ", wanted, ", but it came to ", seen);
  }
  return "";
}

void add_counts(const Outcome& o, Outcome& sum) {
  sum.requests += o.requests;
  sum.finished += o.finished;
  sum.cancelled += o.cancelled;
  sum.refused += o.refused;
  sum.tokens += o.tokens;
  sum.steps += o.steps;
  sum.preemptions += o.preemptions;
  sum.copies += o.copies;
  sum.fetches += o.fetches;
  sum.handovers += o.handovers;
  sum.balanced += o.balanced;
  sum.steps_deferred += o.steps_deferred;
  sum.loads += o.loads;
  sum.prefix_hits += o.prefix_hits;
  sum.crashes += o.crashes;
  sum.faults += o.faults;
  sum.admin_changes += o.admin_changes;
  sum.admin_failures += o.admin_failures;
  sum.virtual_seconds += o.virtual_seconds;
  for (const auto& [kind, count] : o.failures) sum.failures[kind] += count;
  sum.attainment.merge(o.attainment);
  sum.first_token_seconds_max = std::max(sum.first_token_seconds_max, o.first_token_seconds_max);
  sum.gap_seconds_max = std::max(sum.gap_seconds_max, o.gap_seconds_max);
}

}  // namespace shoal
