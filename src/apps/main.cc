// shoal VERB: parses the command line, then hands over to the verb.
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "CLI/CLI.hpp"
#include "apps/settings.h"
#include "apps/verbs.h"
#include "apps/version.h"

namespace {

constexpr char kExamples[] =
    "Examples:\n"
    "  shoal serve models/                     every model of a folder behind one OpenAI-compatible endpoint\n"
    "  shoal run models/tiny-llama \"What is the capital of Denmark?\"\n"
    "  shoal chat models/tiny-llama\n"
    "  shoal list models/\n"
    "Every flag has an environment variable: --max-model-len is SHOAL_MAX_MODEL_LEN.";

}  // namespace

int main(int argc, char** argv) {
  using namespace shoal;
  CLI::App app("Shoal: an elastic server for large language models", "shoal");
  app.footer(kExamples);
  app.require_subcommand(1);
  app.set_version_flag("--version", "shoal " + version_line());
  app.failure_message(CLI::FailureMessage::simple);

  const std::vector<RunVerb> runs = {add_serve(app),    add_run(app),    add_chat(app),   add_list(app),
                                     add_show(app),     add_tokenize(app), add_render(app), add_bench(app),
                                     add_version(app)};
  const auto verbs = app.get_subcommands({});
  for (CLI::App* verb : verbs) name_environment(*verb);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    const int code = app.exit(error);  // prints help, or what is wrong
    return code == 0 ? kExitOk : kExitUsage;
  }
  for (size_t i = 0; i < verbs.size(); ++i) {
    if (!verbs[i]->parsed()) continue;
    const auto settled = settle_config(*verbs[i]);
    if (!settled.ok()) {
      std::fprintf(stderr, "error: %s\n", std::string(settled.message()).c_str());
      return kExitUsage;
    }
    return runs[i]();
  }
  return kExitUsage;
}
