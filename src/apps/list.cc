// shoal list [DIR]: what could be served from a folder, and what could not.
#include <cstdio>
#include <memory>
#include <string>

#include "CLI/CLI.hpp"
#include "absl/strings/str_format.h"
#include "apps/model_scan.h"
#include "apps/table.h"
#include "apps/terminal.h"
#include "apps/verbs.h"
#include "base/bytes.h"
#include "base/log.h"
#include "nlohmann/json.hpp"

namespace shoal {
namespace {

void print_json(const ScanResult& scan) {
  Json models = Json::array();
  for (const FoundModel& model : scan.models) {
    models.push_back({{"name", model.entry.name}, {"path", model.path}, {"format", model.format},
                      {"architecture", model.entry.architecture}, {"parameters", model.entry.parameter_count},
                      {"disk_bytes", model.disk_bytes}, {"weight_bytes", model.entry.weight_bytes},
                      {"context", model.entry.max_model_len}, {"vocab_size", model.entry.vocab_size}});
  }
  Json unservable = Json::array();
  for (const Unservable& model : scan.unservable) {
    unservable.push_back({{"name", model.name}, {"path", model.path}, {"reason", model.reason}});
  }
  std::printf("%s\n", dump_json({{"models", models}, {"unservable", unservable}}, 2).c_str());
}

std::string table_of(const ScanResult& scan) {
  Table table({{"NAME"}, {"ARCHITECTURE", 1}, {"PARAMETERS", 3, true}, {"SIZE", 0, true}, {"CONTEXT", 2, true}, {"FORMAT", 4}});
  for (const FoundModel& model : scan.models) {
    table.row({model.entry.name, model.entry.architecture, absl::StrFormat("%.1f M", static_cast<double>(model.entry.parameter_count) / 1e6),
               format_bytes(model.disk_bytes), absl::StrCat(model.entry.max_model_len), model.format});
  }
  return table.text(stdout_columns());
}

Status list(const std::string& path, bool as_json, bool quiet) {
  ASSIGN_OR_RETURN(const ScanResult scan, scan_models(path, LoadOptions{}, 0));
  if (as_json) print_json(scan);
  if (!as_json) {
    for (const Unservable& model : scan.unservable) note(one_line(absl::StrCat("cannot be served: ", model.name, ": ", model.reason)));
  }
  if (!as_json && quiet) {
    for (const FoundModel& model : scan.models) show_text(model.entry.name + "\n");
  } else if (!as_json && !scan.models.empty()) {
    show_text(table_of(scan));
  }
  return check_any_model(path, scan);
}

}  // namespace

RunVerb add_list(CLI::App& app) {
  CLI::App* verb = app.add_subcommand("list", "List the models of a folder");
  verb->alias("ls");
  auto path = std::make_shared<std::string>("models");
  auto as_json = std::make_shared<bool>(false);
  auto quiet = std::make_shared<bool>(false);
  verb->add_option("path", *path, "Folder of models")->capture_default_str();
  verb->add_flag("--json", *as_json, "Print a JSON object");
  verb->add_flag("-q,--quiet", *quiet, "Names only");
  verb->footer("Examples:\n  shoal list\n  shoal list /srv/models --json");
  return [path, as_json, quiet] {
    return exit_code(list(*path, *as_json, *quiet));
  };
}

}  // namespace shoal
