// The verbs of the command line: each adds its subcommand with its flags, and gives back what runs it.
#pragma once

#include <functional>
#include <string>

#include "base/status.h"

namespace CLI {
class App;
}

namespace shoal {

constexpr int kExitOk = 0;
constexpr int kExitFailed = 1;
constexpr int kExitUsage = 2;
constexpr int kExitInterrupted = 130;  // Ctrl-C ended it, as shells say it

// Runs the verb after its flags have been parsed; the result is the process's exit code.
using RunVerb = std::function<int()>;

RunVerb add_serve(CLI::App& app);
RunVerb add_gateway(CLI::App& app);
RunVerb add_node(CLI::App& app);
RunVerb add_controller(CLI::App& app);
RunVerb add_expert(CLI::App& app);
RunVerb add_experts(CLI::App& app);
RunVerb add_run(CLI::App& app);
RunVerb add_chat(CLI::App& app);
RunVerb add_list(CLI::App& app);
RunVerb add_show(CLI::App& app);
RunVerb add_tokenize(CLI::App& app);
RunVerb add_render(CLI::App& app);
RunVerb add_bench(CLI::App& app);
RunVerb add_simulate(CLI::App& app);
RunVerb add_plan(CLI::App& app);
RunVerb add_ps(CLI::App& app);
RunVerb add_load(CLI::App& app);
RunVerb add_unload(CLI::App& app);
RunVerb add_stop(CLI::App& app);
RunVerb add_top(CLI::App& app);
RunVerb add_trace(CLI::App& app);
RunVerb add_reload(CLI::App& app);
RunVerb add_config(CLI::App& app);
RunVerb add_completion(CLI::App& app);
RunVerb add_man(CLI::App& app);
RunVerb add_version(CLI::App& app);

// "error: WHAT" on stderr; kExitFailed.
int fail(const std::string& what);
// What a verb came to. Cancelled is Ctrl-C: the message, which says how far it came, on stderr and kExitInterrupted; any other
// error is fail().
int exit_code(const Status& status);

}  // namespace shoal
