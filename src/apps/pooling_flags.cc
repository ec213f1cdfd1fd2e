// The flags of serve that say how models share the device.
#include <functional>

#include "absl/strings/numbers.h"
#include "apps/serve_flags.h"

namespace shoal {
namespace {

using Set = std::function<void(PoolingSettings&, double)>;

// Each text is VALUE, for every model, or NAME=VALUE, for one; the later ones win.
Status apply_number(const std::vector<std::string>& given, const std::string& flag, double min, double max, const Set& set,
                    std::vector<FoundModel>& models) {
  for (const std::string& text : given) {
    const size_t equals = text.rfind('=');  // names may hold one too
    double value = 0;
    if (!absl::SimpleAtod(text.substr(equals + 1), &value) || !(value >= min && value <= max)) {
      return invalid_argument(flag, " ", text, ": expected a number from ", min, " to ", max, ", or MODEL=NUMBER");
    }
    if (equals == std::string::npos) {
      for (FoundModel& model : models) set(model.pooling, value);
    } else {
      ASSIGN_OR_RETURN(const size_t index, index_of(text.substr(0, equals), models, flag));
      set(models[index].pooling, value);
    }
  }
  return OkStatus();
}

}  // namespace

Status apply_pooling(const ServeFlags& flags, std::vector<FoundModel>& models) {
  constexpr double kDay = 86400;
  RETURN_IF_ERROR(apply_number(flags.ttft, "--ttft", 0.001, kDay, [](PoolingSettings& s, double x) { s.slo.ttft = from_seconds(x); }, models));
  RETURN_IF_ERROR(apply_number(flags.tbt, "--tbt", 0.0001, kDay, [](PoolingSettings& s, double x) { s.slo.tbt = from_seconds(x); }, models));
  RETURN_IF_ERROR(apply_number(flags.max_wait, "--max-wait", 0.001, kDay, [](PoolingSettings& s, double x) { s.max_wait = from_seconds(x); }, models));
  RETURN_IF_ERROR(apply_number(flags.idle_ttl, "--idle-ttl", 0, 365 * kDay, [](PoolingSettings& s, double x) { s.idle_ttl = from_seconds(x); }, models));
  RETURN_IF_ERROR(apply_number(flags.priority, "--priority", -1000, 1000,
                               [](PoolingSettings& s, double x) { s.priority = static_cast<int32_t>(x); }, models));
  for (const std::string& name : flags.pin) {
    ASSIGN_OR_RETURN(const size_t index, index_of(name, models, "--pin"));
    models[index].pooling.pinned = true;
  }
  for (FoundModel& model : models) model.entry.slo = model.pooling.slo;
  return OkStatus();
}

}  // namespace shoal
