// shoal run MODEL [PROMPT]: one question, one answer, in this process.
#include <memory>
#include <string>

#include "CLI/CLI.hpp"
#include "apps/conversation.h"
#include "apps/signals.h"
#include "apps/table.h"
#include "apps/terminal.h"
#include "apps/verbs.h"
#include "nlohmann/json.hpp"

namespace shoal {
namespace {

constexpr char kExamples[] =
    "Examples:\n"
    "  shoal run models/tiny-llama \"What is 12 + 30?\"\n"
    "  echo \"Write grape backwards.\" | shoal run models/tiny-qwen3";
constexpr size_t kPromptBytesMax = 32u << 20;

Json chat_messages(const std::string& system, const std::string& prompt) {
  Json messages = Json::array();
  if (!system.empty()) messages.push_back({{"role", "system"}, {"content", system}});
  messages.push_back({{"role", "user"}, {"content", prompt}});
  return messages;
}

int run(const TalkFlags& flags, std::string prompt) {
  const bool dash = prompt == "-";  // as everywhere: stdin, even if it is a terminal
  if (dash) prompt.clear();
  if (prompt.empty() && !dash && stdin_is_terminal()) {
    fail("there is no prompt: give one as an argument or on stdin, or use `shoal chat`");
    return kExitUsage;
  }
  if (prompt.empty()) prompt = read_all_stdin(kPromptBytesMax);
  while (!prompt.empty() && prompt.back() == '\n') prompt.pop_back();
  if (prompt.empty()) {
    fail("the prompt is empty");
    return kExitUsage;
  }
  block_stop_signals();
  const auto conversation = Conversation::start(flags);
  if (!conversation.ok()) return fail(std::string(conversation.status().message()));
  catch_interrupts();
  bool reader_gone = false;
  const auto show = [&](std::string_view text) { reader_gone |= !show_text(text); };
  const auto stop = [&] { return interrupted() || reader_gone; };
  const auto answer = (*conversation)->has_chat_template()
                          ? (*conversation)->chat(chat_messages(flags.system, prompt), show, stop)
                          : (*conversation)->complete(prompt, show, stop);
  if (!answer.ok()) return fail(std::string(answer.status().message()));
  show_text("\n");
  if (answer->interrupted && interrupted()) return exit_code(absl::CancelledError("stopped after " + count_text(answer->tokens, "token") + " of the answer"));
  return answer->interrupted ? kExitFailed : kExitOk;
}

}  // namespace

RunVerb add_run(CLI::App& app) {
  CLI::App* verb = app.add_subcommand("run", "Ask a model one question");
  auto flags = std::make_shared<TalkFlags>();
  auto prompt = std::make_shared<std::string>();
  add_talk_flags(*verb, *flags);
  verb->add_option("prompt", *prompt, "The question; stdin if it is left out or -");
  verb->footer(kExamples);
  return [flags, prompt] { return run(*flags, *prompt); };
}

}  // namespace shoal
