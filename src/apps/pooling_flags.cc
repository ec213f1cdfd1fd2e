// The flags of serve that say how models share the device, and what is kept of how they did.
#include <functional>

#include "CLI/CLI.hpp"
#include "apps/serve_flags.h"
#include "base/log.h"

namespace shoal {
namespace {

using Words = std::vector<std::string>;

// Each text is VALUE, for every model, or NAME=VALUE, for one; the later ones win.
Status apply_values(const PoolingField& field, const Words& given, const std::string& flag, std::vector<FoundModel>& models) {
  for (const std::string& text : given) {
    const size_t equals = text.rfind('=');  // names may hold one too
    const auto value = parse_setting(field, text.substr(equals + 1));
    if (!value.ok()) return annotate(value.status(), flag);
    if (equals == std::string::npos) {
      for (FoundModel& model : models) set_said(field, *value, model.pooling);
    } else {
      ASSIGN_OR_RETURN(const size_t index, index_of(text.substr(0, equals), models, flag));
      set_said(field, *value, models[index].pooling);
    }
  }
  return OkStatus();
}

Status apply_switch(const PoolingField& field, const Words& names, const std::string& flag, std::vector<FoundModel>& models) {
  for (const std::string& name : names) {
    ASSIGN_OR_RETURN(const size_t index, index_of(name, models, flag));
    set_said(field, 1, models[index].pooling);
  }
  return OkStatus();
}

// `wanted`: whether a flag of this name is to be looked at.
Status apply_flags(const ServeFlags& flags, const std::function<bool(const char*)>& wanted, std::vector<FoundModel>& models) {
  for (const PoolingField& field : pooling_fields()) {
    const auto given = flags.pooling.find(field.key);
    if (given == flags.pooling.end() || !wanted(field.key)) continue;
    const auto apply = field.is_switch() ? apply_switch : apply_values;
    RETURN_IF_ERROR(apply(field, given->second, std::string("--") + field.key, models));
  }
  return OkStatus();
}

}  // namespace

void add_pooling_flags(CLI::App& verb, ServeFlags& flags) {
  for (const PoolingField& field : pooling_fields()) {
    verb.add_option(std::string("--") + field.key, flags.pooling[field.key], field.help)->delimiter(',');
  }
  const auto preload = [&flags](const CLI::results_t& words) {
    flags.preload = words.front().empty() ? "all" : words.front();
    return true;
  };
  verb.add_option("--preload", preload, "Models that are loaded at start; without a name all of them; the others at first use (default: a model that is the only one; none: not even that)")
      ->expected(0, 1)->type_name("TEXT")->delimiter(',')->multi_option_policy(CLI::MultiOptionPolicy::Join);
  verb.add_option("--record-events", flags.engine.record_events, "Write everything that nodes are told and answer to this file, for `shoal simulate --replay`. It holds prompts and "
                  "answers as ids of tokens: keep it as you keep those");
  verb.add_option("--estimates", flags.estimates, "File that keeps what steps and switches took from run to run (default: $XDG_STATE_HOME/shoal/estimates.json; none: "
                  "every start guesses anew)");
  verb.add_option("--digests", flags.digests, "File that keeps which weights model files hold, by their headers and samples, and by SHA-256 of all their bytes, read when nothing else is to be done "
                  "(default: $XDG_CACHE_HOME/shoal/digests.json; none: headers and samples are looked at anew, the rest is not read)");
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
