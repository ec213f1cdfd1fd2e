#include "apps/line_editor.h"

#include <histedit.h>
#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <clocale>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <cwchar>
#include <deque>
#include <langinfo.h>

#include "absl/strings/str_replace.h"

namespace shoal {
namespace {

constexpr char kPasteBegins[] = "\033[200~", kPasteEnds[] = "\033[201~";
constexpr char kPasteOn[] = "\033[?2004h", kPasteOff[] = "\033[?2004l";  // the terminal marks what is pasted
constexpr int kSequenceWaitMs = 20;      // the rest of a key's escape sequence follows at once
constexpr size_t kPasteBytesMax = 4u << 20;
// A line on the screen cannot hold a newline: pasted ones are shown as this, and are newlines again in the message.
constexpr char kNewlineSign[] = "\u21b5";

std::string on_one_line(const std::string& message) { return absl::StrReplaceAll(message, {{"\n", kNewlineSign}}); }
std::string with_newlines(const std::string& line) { return absl::StrReplaceAll(line, {{kNewlineSign, "\n"}}); }

// libedit shows what is not of the locale as octal digits: make it one of UTF-8.
void use_utf8() {
  std::setlocale(LC_CTYPE, "");
  if (std::strcmp(nl_langinfo(CODESET), "UTF-8") != 0) std::setlocale(LC_CTYPE, "C.UTF-8");
}

// Edits with libedit, which reads its bytes through read_character().
class LineEditor final : public LineSource {
 public:
  explicit LineEditor(std::string history_path)
      : history_path_(std::move(history_path)), history_(history_init()), edit_(el_init("shoal", stdin, stdout, stderr)) {
    use_utf8();
    HistEvent event;
    history(history_, &event, H_SETSIZE, static_cast<int>(kHistoryMax));
    history(history_, &event, H_SETUNIQUE, 1);
    for (const std::string& message : read_history(history_path_)) history(history_, &event, H_ENTER, on_one_line(message).c_str());
    el_set(edit_, EL_CLIENTDATA, this);
    el_set(edit_, EL_EDITOR, "emacs");
    el_set(edit_, EL_SIGNAL, 0);
    el_set(edit_, EL_HIST, history, history_);
    el_set(edit_, EL_PROMPT_ESC, &LineEditor::prompt_of, '\1');
    el_set(edit_, EL_GETCFN, &LineEditor::read_character);
    el_set(edit_, EL_BIND, "^R", "em-inc-search-prev", nullptr);
    el_set(edit_, EL_BIND, "\033[1;5C", "em-next-word", nullptr);
    el_set(edit_, EL_BIND, "\033[1;5D", "ed-prev-word", nullptr);
    el_set(edit_, EL_BIND, "\033[3~", "ed-delete-next-char", nullptr);
  }
  ~LineEditor() override {
    el_end(edit_);
    history_end(history_);
  }

  std::optional<std::string> next(const std::string& prompt) override {
    prompt_ = "\1" + emphasised("\1" + prompt + "\1") + "\1 ";  // libedit drops an escape sequence at the very end
    end_ = LineReader::End::kNone;
    interrupted_ = false;
    el_set(edit_, EL_PREP_TERM, 1);  // before the prompt is there and somebody types
    std::fputs(kPasteOn, stdout);
    std::fflush(stdout);
    int count = 0;
    const char* line = el_gets(edit_, &count);
    std::fputs(kPasteOff, stdout);
    std::fflush(stdout);
    if (interrupted_) {
      el_reset(edit_);
      end_ = LineReader::End::kInterrupt;
      return std::nullopt;
    }
    if (line == nullptr || count <= 0) {
      end_ = LineReader::End::kEof;
      return std::nullopt;
    }
    std::string text(line, static_cast<size_t>(count));
    if (!text.empty() && text.back() == '\n') text.pop_back();
    return with_newlines(text);
  }

  LineReader::End end() const override { return end_; }

  void remember(const std::string& message) override {
    HistEvent event;
    history(history_, &event, H_ENTER, on_one_line(message).c_str());
    append_history(history_path_, message);
  }

 private:
  static LineEditor& self_of(EditLine* edit) {
    void* self = nullptr;
    el_get(edit, EL_CLIENTDATA, &self);
    return *static_cast<LineEditor*>(self);
  }
  static char* prompt_of(EditLine* edit) { return self_of(edit).prompt_.data(); }

  // One character of the keyboard: 1, or 0 at the end, or -1 after Ctrl-C.
  static int read_character(EditLine* edit, wchar_t* out) {
    LineEditor& self = self_of(edit);
    std::mbstate_t state{};
    while (true) {
      const int byte = self.next_byte();
      if (byte < 0) return byte == kEnd ? 0 : -1;
      const char c = static_cast<char>(byte);
      const size_t used = std::mbrtowc(out, &c, 1, &state);
      if (used == static_cast<size_t>(-2)) continue;          // more bytes of it follow
      if (used == static_cast<size_t>(-1)) *out = L'\ufffd';  // no UTF-8
      return 1;
    }
  }

  static constexpr int kEnd = -1, kStopped = -2;

  // From what was read ahead, or the keyboard; a paste is taken whole and its newlines are replaced.
  int next_byte() {
    if (ahead_.empty()) {
      const int byte = read_byte(-1);
      if (byte != '\033') return byte;
      ahead_.push_back('\033');
      if (match(kPasteBegins)) take_paste();
      if (ahead_.empty()) return next_byte();
    }
    const int byte = static_cast<unsigned char>(ahead_.front());
    ahead_.pop_front();
    return byte;
  }

  // Whether `sequence`, whose first byte is in ahead_, comes next: then it is gone; else what was read stays ahead.
  bool match(const char* sequence) {
    for (size_t i = 1; sequence[i] != '\0'; ++i) {
      const int byte = read_byte(kSequenceWaitMs);
      if (byte < 0) return false;
      ahead_.push_back(static_cast<char>(byte));
      if (byte != sequence[i]) return false;
    }
    ahead_.clear();
    return true;
  }

  void take_paste() {
    std::string text;
    const std::string end = kPasteEnds;
    while (text.size() < kPasteBytesMax && !text.ends_with(end)) {
      const int byte = read_byte(-1);
      if (byte < 0) break;
      text.push_back(static_cast<char>(byte));
    }
    if (text.ends_with(end)) text.resize(text.size() - end.size());
    text = absl::StrReplaceAll(text, {{"\r\n", "\n"}, {"\r", "\n"}, {"\t", "    "}, {"\033", ""}});
    for (const char c : on_one_line(text)) ahead_.push_back(c);
  }

  // timeout_ms below 0: for ever. Ctrl-C is let in only while this waits, so that none comes between looking and waiting.
  int read_byte(int timeout_ms) {
    sigset_t interrupt, before;
    sigemptyset(&interrupt);
    sigaddset(&interrupt, SIGINT);
    pthread_sigmask(SIG_BLOCK, &interrupt, &before);
    pollfd ready{.fd = STDIN_FILENO, .events = POLLIN};
    const timespec wait{.tv_nsec = timeout_ms * 1'000'000L};
    int found = -1;
    while (!interrupted()) {
      found = ppoll(&ready, 1, timeout_ms < 0 ? nullptr : &wait, &before);
      if (found >= 0 || errno != EINTR) break;
    }
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    if (interrupted()) {
      interrupted_ = true;
      return kStopped;
    }
    unsigned char byte = 0;
    return found > 0 && read(STDIN_FILENO, &byte, 1) == 1 ? byte : kEnd;
  }

  const std::string history_path_;
  History* history_;
  EditLine* edit_;
  std::string prompt_;
  std::deque<char> ahead_;
  bool interrupted_ = false;
  LineReader::End end_ = LineReader::End::kNone;
};

class PlainLines final : public LineSource {
 public:
  explicit PlainLines(bool prompts) : prompts_(prompts) {}
  std::optional<std::string> next(const std::string& prompt) override {
    if (prompts_) show_text(prompt + " ");
    return reader_.next();
  }
  LineReader::End end() const override { return reader_.end(); }
  void remember(const std::string&) override {}

 private:
  bool prompts_;
  LineReader reader_;
};

}  // namespace

std::unique_ptr<LineSource> make_line_source(const std::string& history_path) {
  if (stdin_is_terminal() && stdout_is_terminal()) return std::make_unique<LineEditor>(history_path);
  return std::make_unique<PlainLines>(false);
}

}  // namespace shoal
