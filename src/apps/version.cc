#include "apps/version.h"

#include <cstdio>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "apps/build_info.h"
#include "apps/verbs.h"
#include "base/json.h"
#include "nlohmann/json.hpp"

namespace shoal {
namespace {

// Optional backends that were built in.
Json features() {
  Json list = Json::array({"cpu"});
#if SHOAL_WITH_CUDA
  list.push_back("cuda");
#endif
#if SHOAL_WITH_UCX
  list.push_back("ucx");
#endif
#if SHOAL_WITH_ETCD
  list.push_back("etcd");
#endif
  return list;
}

}  // namespace

std::string version_number() { return SHOAL_VERSION; }

std::string version_line() {
  std::string names;
  for (const Json& feature : features()) absl::StrAppend(&names, names.empty() ? "" : " ", feature.get<std::string>());
  return absl::StrCat(SHOAL_VERSION, " (", SHOAL_COMMIT, ", ", SHOAL_COMPILER, ", ", names, ")");
}

std::string version_json() {
  return dump_json({{"version", SHOAL_VERSION}, {"commit", SHOAL_COMMIT}, {"compiler", SHOAL_COMPILER},
                    {"build_type", SHOAL_BUILD_TYPE}, {"features", features()}});
}

RunVerb add_version(CLI::App& app) {
  CLI::App* verb = app.add_subcommand("version", "Print the version");
  auto as_json = std::make_shared<bool>(false);
  verb->add_flag("--json", *as_json, "Print a JSON object");
  verb->footer("Examples:\n  shoal version\n  shoal version --json");
  return [as_json] {
    std::printf("%s\n", *as_json ? version_json().c_str() : ("shoal " + version_line()).c_str());
    return kExitOk;
  };
}

}  // namespace shoal
