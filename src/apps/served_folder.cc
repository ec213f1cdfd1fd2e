#include "apps/served_folder.h"

#include <algorithm>
#include <set>

#include "absl/strings/str_join.h"
#include "apps/model_scan.h"
#include "base/log.h"
#include "nlohmann/json.hpp"

namespace shoal {
namespace {

// Flags that take effect while the server runs; what else changed waits for a restart.
bool reloadable(const std::string& flag) {
  constexpr std::string_view kOthers[] = {"alias", "tool-call-parser", "reasoning-parser", "preload"};
  return pooling_field(flag) != nullptr || std::find(std::begin(kOthers), std::end(kOthers), flag) != std::end(kOthers);
}

}  // namespace

Status settle(ServeFlags& flags) {
  std::vector<std::string> problems;
  flags.models = read_model_settings(config_file(flags), problems);
  if (!problems.empty()) return invalid_argument(absl::StrJoin(problems, "; "));
  RETURN_IF_ERROR(apply(flags.log));
  RETURN_IF_ERROR(check_serve_flags(flags));
  if (!config_file(flags).empty()) log_info("settings of ", config_file(flags));
  flags.engine.estimates_file = estimates_file(flags);
  flags.engine.digests_file = digests_file(flags);
  return OkStatus();
}

StatusOr<std::vector<FoundModel>> models_to_serve(const ServeFlags& flags) {
  ASSIGN_OR_RETURN(const LoadOptions options, load_options(flags.engine));
  ASSIGN_OR_RETURN(ScanResult scan, scan_models(flags.path, options, flags.engine.max_model_len));
  for (const Unservable& model : scan.unservable) log_warning("not served: ", model.name, ": ", model.reason);
  RETURN_IF_ERROR(check_any_model(flags.path, scan));
  RETURN_IF_ERROR(apply_aliases(flags.aliases, scan.models));
  RETURN_IF_ERROR(apply_parsers(flags, scan.models));
  RETURN_IF_ERROR(apply_pooling(flags, scan.models));
  return std::move(scan.models);
}

StatusOr<Json> reload_folder(ServeFlags& flags, const AddFlags& add, const ReloadParts& parts) {
  const auto attempt = [&]() -> StatusOr<Json> {
    ASSIGN_OR_RETURN(ServeFlags next, settle_again(flags, add));
    RETURN_IF_ERROR(check_serve_flags(next));
    ASSIGN_OR_RETURN(std::vector<FoundModel> models, models_to_serve(next));
    std::vector<std::string> restart = changed_flags(flags, next);
    std::erase_if(restart, reloadable);
    ASSIGN_OR_RETURN(const std::vector<ModelId> preload, models_to_preload(next.preload, models));  // ids of this list
    std::set<std::string> wanted;
    for (const ModelId id : preload) wanted.insert(models[id.value].entry.name);
    const ModelChanges changes = parts.update(std::move(models));
    for (const std::string& name : changes.added) {
      const ModelRef model = parts.catalog.find(name);
      if (model != nullptr && wanted.contains(name)) parts.load(model->id);
    }
    flags.models = next.models;
    return Json{{"success", true}, {"added", changes.added}, {"removed", changes.removed}, {"changed", changes.changed},
                {"refused", changes.refused}, {"restart_needed", restart}};
  };
  auto result = attempt();
  if (!result.ok()) log_error("the settings were not reloaded, nothing was changed: ", result.status().message());
  if (result.ok()) log_info("settings reloaded: ", dump_json(*result));
  return result;
}

}  // namespace shoal
