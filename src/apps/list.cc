// shoal list [DIR]: what could be served from a folder, and what could not.
#include <cstdio>
#include <memory>
#include <string>

#include "CLI/CLI.hpp"
#include "apps/model_scan.h"
#include "apps/verbs.h"
#include "base/bytes.h"
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

void print_table(const ScanResult& scan) {
  std::printf("%-32s %-12s %12s %12s %9s  %s\n", "NAME", "ARCHITECTURE", "PARAMETERS", "SIZE", "CONTEXT", "FORMAT");
  for (const FoundModel& model : scan.models) {
    std::printf("%-32s %-12s %10.1f M %12s %9u  %s\n", model.entry.name.c_str(), model.entry.architecture.c_str(),
                static_cast<double>(model.entry.parameter_count) / 1e6, format_bytes(model.disk_bytes).c_str(),
                model.entry.max_model_len, model.format.c_str());
  }
  for (const Unservable& model : scan.unservable) {
    std::fprintf(stderr, "cannot be served: %s: %s\n", model.name.c_str(), model.reason.c_str());
  }
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
    const auto scan = scan_models(*path, LoadOptions{}, 0);
    if (!scan.ok()) return fail(std::string(scan.status().message()));
    if (*quiet) {
      for (const FoundModel& model : scan->models) std::printf("%s\n", model.entry.name.c_str());
    } else {
      *as_json ? print_json(*scan) : print_table(*scan);
    }
    return kExitOk;
  };
}

}  // namespace shoal
