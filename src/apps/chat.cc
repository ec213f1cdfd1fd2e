// shoal chat MODEL: a conversation in the terminal, in this process.
#include <memory>
#include <string>

#include "CLI/CLI.hpp"
#include "apps/conversation.h"
#include "apps/signals.h"
#include "apps/terminal.h"
#include "apps/verbs.h"
#include "nlohmann/json.hpp"

namespace shoal {
namespace {

constexpr char kHelp[] =
    "  /bye      quit (Ctrl-D too)\n"
    "  /clear    forget the conversation\n"
    "  /help     this\n"
    "  \"\"\"       starts and ends a message of several lines; a \\ at the end of a line continues it\n"
    "  Ctrl-C    stops the answer\n";
constexpr char kMarks[] = "\"\"\"";

// One message, which may span lines. nullopt: the end of input, or Ctrl-C (see reader.end()).
std::optional<std::string> read_message(LineReader& reader, bool prompts) {
  if (prompts) show_text(emphasised(">>> "));
  auto line = reader.next();
  if (!line) return std::nullopt;
  std::string message;
  const bool block = line->rfind(kMarks, 0) == 0;
  if (block) line->erase(0, 3);
  while (true) {
    const size_t end = block ? line->find(kMarks) : std::string::npos;
    const bool continued = !block && !line->empty() && line->back() == '\\';
    if (end != std::string::npos) line->erase(end);
    if (continued) line->pop_back();
    message += *line;
    if (block ? end != std::string::npos : !continued) return message;
    message += '\n';
    if (prompts) show_text("... ");
    line = reader.next();
    if (!line) return reader.end() == LineReader::End::kInterrupt ? std::nullopt : std::optional(message);
  }
}

Json first_messages(const std::string& system) {
  Json messages = Json::array();
  if (!system.empty()) messages.push_back({{"role", "system"}, {"content", system}});
  return messages;
}

// Asks, shows, and keeps what was said; a failed question is taken back.
void exchange(Conversation& conversation, const std::string& question, Json& messages) {
  messages.push_back({{"role", "user"}, {"content", question}});
  clear_interrupt();
  const auto answer = conversation.chat(messages, [](std::string_view text) { show_text(text); }, interrupted);
  show_text("\n");
  if (!answer.ok()) {
    fail(std::string(answer.status().message()));
    messages.erase(messages.size() - 1);
    return;
  }
  messages.push_back({{"role", "assistant"}, {"content", answer->text}});
}

int chat(const TalkFlags& flags) {
  block_stop_signals();
  const auto started = Conversation::start(flags);
  if (!started.ok()) return fail(std::string(started.status().message()));
  Conversation& conversation = **started;
  if (!conversation.has_chat_template()) {
    return fail(conversation.model_name() + " has no chat template; `shoal run` continues a text with it");
  }
  catch_interrupts();
  const bool prompts = stdin_is_terminal() && stdout_is_terminal();
  if (prompts) show_text(emphasised(conversation.model_name()) + "  (/help for help, /bye to quit)\n");
  LineReader reader;
  Json messages = first_messages(flags.system);
  while (true) {
    clear_interrupt();
    const auto message = read_message(reader, prompts);
    if (!message && reader.end() == LineReader::End::kInterrupt) {
      show_text("\nUse /bye or Ctrl-D to quit.\n");
      continue;
    }
    if (!message || *message == "/bye" || *message == "/exit") break;
    if (message->empty()) continue;
    if (*message == "/clear") {
      messages = first_messages(flags.system);
    } else if (*message == "/help" || *message == "/?") {
      show_text(kHelp);
    } else {
      exchange(conversation, *message, messages);
    }
  }
  if (prompts) show_text("\n");
  return kExitOk;
}

}  // namespace

RunVerb add_chat(CLI::App& app) {
  CLI::App* verb = app.add_subcommand("chat", "Talk with a model in the terminal");
  auto flags = std::make_shared<TalkFlags>();
  add_talk_flags(*verb, *flags);
  verb->footer("Examples:\n  shoal chat models/tiny-llama --system \"Answer briefly.\"");
  return [flags] { return chat(*flags); };
}

}  // namespace shoal
