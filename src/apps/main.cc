// shoal VERB: parses the command line, then hands over to the verb.
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "CLI/CLI.hpp"
#include "apps/serve_flags.h"
#include "apps/settings.h"
#include "apps/usage.h"
#include "apps/verbs.h"
#include "apps/version.h"

namespace {

constexpr char kExamples[] =
    "Examples:\n"
    "  shoal serve models/                     every model of a folder behind one OpenAI-compatible endpoint\n"
    "  shoal run models/tiny-llama \"What is the capital of Denmark?\"\n"
    "  shoal chat models/tiny-llama\n"
    "  shoal list models/\n"
    "  shoal ps                                what a running server has loaded\n"
    "  shoal bench --request-rate 10           load a server and measure it\n"
    "  shoal simulate --devices 16xH800 --models 70 --request-rate 7\n"
    "Every flag has an environment variable: --max-model-len is SHOAL_MAX_MODEL_LEN.";

}  // namespace

int main(int argc, char** argv) {
  using namespace shoal;
  CLI::App app("Shoal: an elastic server for large language models", "shoal");
  app.footer(kExamples);
  app.require_subcommand(1);
  app.set_version_flag("--version", "shoal " + version_line());

  std::vector<RunVerb> runs;
  for (const auto add : {add_serve, add_gateway, add_node, add_controller, add_expert, add_experts, add_run, add_chat, add_list, add_show, add_ps, add_load, add_unload, add_stop, add_top, add_trace, add_reload, add_tokenize, add_render, add_bench, add_simulate, add_plan,
                         add_config, add_completion, add_man, add_version}) {
    runs.push_back(add(app));
  }
  const auto verbs = app.get_subcommands({});
  for (CLI::App* verb : verbs) name_environment(*verb);
  if (argc < 2) {
    std::fputs(app.help().c_str(), stderr);
    return kExitUsage;
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == static_cast<int>(CLI::ExitCodes::Success)) return app.exit(error);  // help or version
    fail(usage_error(app, error));
    std::fprintf(stderr, "`%s --help` shows what there is.\n", verb_typed(app).c_str());
    return kExitUsage;
  }
  for (size_t i = 0; i < verbs.size(); ++i) {
    if (!verbs[i]->parsed()) continue;
    const std::string name = verbs[i]->get_name();
    const bool shares_file = name == "gateway" || name == "node" || name == "controller";
    const auto settled = settle_config(*verbs[i], shares_file ? is_serve_flag : nullptr);
    if (!settled.ok()) {
      std::fprintf(stderr, "error: %s\n", std::string(settled.message()).c_str());
      return kExitUsage;
    }
    return runs[i]();
  }
  return kExitUsage;
}
