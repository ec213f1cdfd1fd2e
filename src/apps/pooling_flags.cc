// The flags of serve that say how models share the device, and what is kept of how they did.
#include <functional>

#include "CLI/CLI.hpp"
#include "absl/strings/numbers.h"
#include "apps/serve_flags.h"
#include "base/log.h"

namespace shoal {
namespace {

using Set = std::function<void(PoolingSettings&, double)>;
using Parse = std::function<StatusOr<double>(const std::string&)>;

// Each text is VALUE, for every model, or NAME=VALUE, for one; the later ones win.
Status apply_each(const std::vector<std::string>& given, const std::string& flag, const Parse& parse, const Set& set, std::vector<FoundModel>& models) {
  for (const std::string& text : given) {
    const size_t equals = text.rfind('=');  // names may hold one too
    const auto value = parse(text.substr(equals + 1));
    if (!value.ok()) return annotate(value.status(), flag);
    if (equals == std::string::npos) {
      for (FoundModel& model : models) set(model.pooling, *value);
    } else {
      ASSIGN_OR_RETURN(const size_t index, index_of(text.substr(0, equals), models, flag));
      set(models[index].pooling, *value);
    }
  }
  return OkStatus();
}

Parse time_from(double min, double max) {
  return [=](const std::string& text) { return parse_seconds(text, min, max); };
}

StatusOr<double> priority_from(const std::string& text) {
  int32_t value = 0;
  if (absl::SimpleAtoi(text, &value) && value >= -kPriorityMax && value <= kPriorityMax) return value;
  return invalid_argument("'", text, "' must be a whole number from ", -kPriorityMax, " to ", kPriorityMax);
}

// `wanted`: whether a flag of this name is to be looked at.
Status apply_flags(const ServeFlags& flags, const std::function<bool(const char*)>& wanted, std::vector<FoundModel>& models) {
  struct Row {
    const char* name;
    const std::vector<std::string>& given;
    Parse parse;
    Set set;
  };
  const Row rows[] = {
      {"ttft", flags.ttft, time_from(kTtftMin, kDeadlineMax), [](PoolingSettings& s, double x) { s.slo.ttft = from_seconds(x); }},
      {"tbt", flags.tbt, time_from(kTbtMin, kDeadlineMax), [](PoolingSettings& s, double x) { s.slo.tbt = from_seconds(x); }},
      {"max-wait", flags.max_wait, time_from(kMaxWaitMin, kDeadlineMax), [](PoolingSettings& s, double x) { s.max_wait = from_seconds(x); }},
      {"idle-ttl", flags.idle_ttl, time_from(0, kIdleTtlMax), [](PoolingSettings& s, double x) { s.idle_ttl = from_seconds(x); }},
      {"priority", flags.priority, priority_from, [](PoolingSettings& s, double x) { s.priority = static_cast<int32_t>(x); }},
  };
  for (const Row& row : rows) {
    if (wanted(row.name)) RETURN_IF_ERROR(apply_each(row.given, std::string("--") + row.name, row.parse, row.set, models));
  }
  if (!wanted("pin")) return OkStatus();
  for (const std::string& name : flags.pin) {
    ASSIGN_OR_RETURN(const size_t index, index_of(name, models, "--pin"));
    models[index].pooling.pinned = true;
  }
  return OkStatus();
}

}  // namespace

void add_pooling_flags(CLI::App& verb, ServeFlags& flags) {
  verb.add_option("--ttft", flags.ttft, "Time to the first token that turns aim at: TIME or MODEL=TIME, in seconds or as 500ms, 2m (default: 10)")->delimiter(',');
  verb.add_option("--tbt", flags.tbt, "Likewise between tokens (default: 0.1)")->delimiter(',');
  verb.add_option("--max-wait", flags.max_wait, "Longest wait for the first step: TIME or MODEL=TIME; what would wait longer gets 503 with Retry-After")->delimiter(',');
  verb.add_option("--idle-ttl", flags.idle_ttl, "A model without requests leaves the device after TIME, or MODEL=TIME")->delimiter(',');
  verb.add_option("--priority", flags.priority, "Of models that wait for the device the higher comes first: N or MODEL=N (default: 0)")->delimiter(',');
  verb.add_option("--pin", flags.pin, "Models that are loaded at start and never give way")->delimiter(',');
  const auto preload = [&flags](const CLI::results_t& words) {
    flags.preload = words.front().empty() ? "all" : words.front();
    return true;
  };
  verb.add_option("--preload", preload, "Models that are loaded at start; without a name all of them; the others at first use (default: a model that is the only one; none: not even that)")
      ->expected(0, 1)->type_name("TEXT")->delimiter(',')->multi_option_policy(CLI::MultiOptionPolicy::Join);
  verb.add_option("--record", flags.record, "Write the run to this file, a JSON object per line: requests (lengths and times, never text) and what the devices did");
  verb.add_option("--record-events", flags.engine.record_events, "Write everything that nodes are told and answer to this file, for `shoal simulate --replay`. It holds prompts and "
                  "answers as ids of tokens: keep it as you keep those");
  verb.add_option("--estimates", flags.estimates, "File that keeps what steps and switches took from run to run (default: $XDG_STATE_HOME/shoal/estimates.json; none: "
                  "every start guesses anew)");
}

Status apply_pooling(const ServeFlags& flags, std::vector<FoundModel>& models) {
  RETURN_IF_ERROR(apply_flags(flags, [&](const char* name) { return !flags.given.contains(name); }, models));
  ASSIGN_OR_RETURN(const std::vector<std::string> absent, apply_model_settings(flags.models, models));
  for (const std::string& what : absent) log_warning(what);
  RETURN_IF_ERROR(apply_flags(flags, [&](const char* name) { return flags.given.contains(name); }, models));
  for (FoundModel& model : models) model.entry.slo = model.pooling.slo;
  return OkStatus();
}

}  // namespace shoal
