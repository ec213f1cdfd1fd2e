// shoal chat MODEL: a conversation in the terminal, in this process.
#include <algorithm>
#include <filesystem>
#include <memory>
#include <string>

#include "CLI/CLI.hpp"
#include "apps/conversation.h"
#include "apps/line_editor.h"
#include "apps/output_file.h"
#include "apps/signals.h"
#include "apps/table.h"
#include "apps/terminal.h"
#include "apps/thinking.h"
#include "apps/verbs.h"
#include "base/nearest.h"
#include "nlohmann/json.hpp"

namespace shoal {
namespace {

constexpr char kHelp[] =
    "  /help           this\n"
    "  /clear          forget the conversation\n"
    "  /system TEXT    begin anew with this system message; without TEXT it is shown\n"
    "  /regen          answer the last question again\n"
    "  /save FILE      write the conversation as JSON messages\n"
    "  /bye            quit (/exit, /quit, a lone exit or quit, and Ctrl-D too)\n"
    "  \"\"\"             starts and ends a message of several lines; a \\ at the end of a line continues it\n"
    "  Ctrl-C          stops the answer, or clears the line\n"
    "  up, down, ^R    earlier messages\n";
constexpr char kMarks[] = "\"\"\"";
constexpr std::string_view kCommands[] = {"/help", "/clear", "/system", "/regen", "/save", "/bye", "/exit", "/quit"};

// A message that ends the chat. Without a slash only where nothing else is said.
bool leaves(const std::string& message) {
  return message == "/bye" || message == "/exit" || message == "/quit" || message == "exit" || message == "quit";
}

// One message, which may span lines. nullopt: the end of input, or Ctrl-C (see lines.end()).
std::optional<std::string> read_message(LineSource& lines) {
  auto line = lines.next(">>>");
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
    line = lines.next("...");
    if (!line) return lines.end() == LineReader::End::kInterrupt ? std::nullopt : std::optional(message);
  }
}

class Chat {
 public:
  Chat(Conversation& conversation, std::string system)
      : conversation_(conversation), system_(std::move(system)), dims_(dims_text()) {
    forget();
  }

  // Asks, shows, and keeps what was said; a failed question is taken back.
  void ask(const std::string& question) {
    messages_.push_back({{"role", "user"}, {"content", question}});
    if (!answer()) messages_.erase(messages_.size() - 1);
  }

  // What Ctrl-C came to where nobody is asked what comes next.
  Status cut_off() const {
    const auto answers = std::count_if(messages_.begin(), messages_.end(), [](const Json& m) { return m["role"] == "assistant"; });
    return absl::CancelledError("stopped after " + count_text(static_cast<double>(answers), "answer") + "; the last may be cut");
  }

  // A line that begins with "/". False: it ends the chat.
  bool command(const std::string& line) {
    const std::string word = line.substr(0, line.find(' '));
    const size_t at = line.find_first_not_of(' ', word.size());
    const std::string rest = at == std::string::npos ? "" : line.substr(at);
    if (leaves(word)) return false;
    if (word == "/help" || word == "/?") show_text(kHelp);
    else if (word == "/clear") forget();
    else if (word == "/system") system(rest);
    else if (word == "/regen") regenerate();
    else if (word == "/save") save(rest);
    else show_text("There is no command " + word + did_you_mean(word, kCommands) + "; /help lists them.\n");
    return true;
  }

 private:
  void forget() {
    messages_ = Json::array();
    if (!system_.empty()) messages_.push_back({{"role", "system"}, {"content", system_}});
  }

  bool answer() {
    clear_interrupt();
    ThinkingStyle style(dims_ ? "\033[2m" : "<think>", dims_ ? "\033[22m" : "</think>");
    const auto said = conversation_.chat(messages_, [&](std::string_view text) { show_text(style.push(text)); }, interrupted);
    show_text(style.finish() + "\n");
    if (!said.ok()) {
      fail(std::string(said.status().message()));
      return false;
    }
    messages_.push_back({{"role", "assistant"}, {"content", said->text}});
    return true;
  }

  void system(const std::string& text) {
    if (text.empty()) return void(show_text(system_.empty() ? "There is no system message.\n" : system_ + "\n"));
    system_ = text;
    forget();
  }

  void regenerate() {
    if (messages_.empty() || messages_.back()["role"] != "assistant") return void(show_text("There is no answer yet.\n"));
    const Json last = messages_.back();
    messages_.erase(messages_.size() - 1);
    if (!answer()) messages_.push_back(last);
  }

  void save(const std::string& path) {
    if (path.empty()) return void(show_text("Write /save FILE.\n"));
    std::error_code ignored;
    if (std::filesystem::exists(path, ignored)) return void(fail(path + ": is there already; choose another name"));
    const Status written = write_output(path, dump_json(messages_, 2) + "\n");
    if (!written.ok()) return void(fail(std::string(written.message())));
    show_text("Wrote " + path + "\n");
  }

  Conversation& conversation_;
  std::string system_;
  const bool dims_;  // thoughts in faint letters instead of between tags
  Json messages_;
};

int chat(const TalkFlags& flags, bool no_history) {
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
  const auto lines = make_line_source(no_history ? "" : default_history_path());
  Chat chat(conversation, flags.system);
  while (true) {
    clear_interrupt();
    const auto message = read_message(*lines);
    if (!message && lines->end() == LineReader::End::kInterrupt) {
      if (!stdin_is_terminal()) return exit_code(chat.cut_off());
      show_text("\nUse /bye or Ctrl-D to quit.\n");
      continue;
    }
    if (!message) break;
    if (message->empty()) continue;
    if (leaves(*message)) break;
    lines->remember(*message);
    if (message->front() != '/') {
      chat.ask(*message);
      if (interrupted() && !stdin_is_terminal()) return exit_code(chat.cut_off());
    } else if (!chat.command(*message)) {
      break;
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
  auto no_history = std::make_shared<bool>(false);
  verb->add_flag("--no-history", *no_history, "Keep no history of messages between sessions");
  verb->footer("Messages are kept in $XDG_STATE_HOME/shoal/history (or ~/.local/state), for you alone.\n\n"
               "Examples:\n  shoal chat tiny-llama\n  shoal chat models/tiny-llama --system \"Answer briefly.\" --no-history");
  return [flags, no_history] { return chat(*flags, *no_history); };
}

}  // namespace shoal
