#include "apps/terminal.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <utility>

namespace shoal {
namespace {

volatile std::sig_atomic_t interrupt_seen = 0;

void on_interrupt(int) { interrupt_seen = 1; }

}  // namespace

bool stdin_is_terminal() { return isatty(STDIN_FILENO) != 0; }
bool stdout_is_terminal() { return isatty(STDOUT_FILENO) != 0; }
size_t stdout_columns() {
  winsize size{};
  return stdout_is_terminal() && ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 ? size.ws_col : 0;
}

bool dims_text() {
  const char* no_color = std::getenv("NO_COLOR");
  return stdout_is_terminal() && (no_color == nullptr || *no_color == '\0');
}

std::string emphasised(std::string_view text) {
  return dims_text() ? "\033[1m" + std::string(text) + "\033[0m" : std::string(text);
}

bool show_text(std::string_view text) {
  return std::fwrite(text.data(), 1, text.size(), stdout) == text.size() && std::fflush(stdout) == 0;
}

void note(const std::string& line) { std::fprintf(stderr, "%s\n", line.c_str()); }

void catch_interrupts() {
  struct sigaction action {};
  action.sa_handler = on_interrupt;  // without SA_RESTART: a waiting read() returns
  sigaction(SIGINT, &action, nullptr);
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGINT);
  sigaddset(&set, SIGTERM);
  pthread_sigmask(SIG_UNBLOCK, &set, nullptr);
}

bool interrupted() { return interrupt_seen != 0; }
void clear_interrupt() { interrupt_seen = 0; }

std::optional<std::string> LineReader::next() {
  while (true) {
    if (const size_t at = buffered_.find('\n'); at != std::string::npos) {
      std::string line = buffered_.substr(0, at);
      buffered_.erase(0, at + 1);
      if (!line.empty() && line.back() == '\r') line.pop_back();
      end_ = End::kNone;
      return line;
    }
    char bytes[4096];
    const ssize_t count = read(STDIN_FILENO, bytes, sizeof bytes);
    if (count < 0 && errno == EINTR) {
      if (!interrupted()) continue;
      end_ = End::kInterrupt;
      return std::nullopt;
    }
    if (count <= 0) {
      end_ = End::kEof;
      if (buffered_.empty()) return std::nullopt;
      return std::exchange(buffered_, "");
    }
    buffered_.append(bytes, static_cast<size_t>(count));
  }
}

std::string read_all_stdin(size_t bytes_max) {
  std::string text;
  char bytes[65536];
  while (text.size() < bytes_max) {
    const ssize_t count = read(STDIN_FILENO, bytes, sizeof bytes);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) break;
    text.append(bytes, static_cast<size_t>(count));
  }
  return text;
}

}  // namespace shoal
