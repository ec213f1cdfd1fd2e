#include "apps/progress.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

namespace shoal {
namespace {

constexpr size_t kBarColumns = 24;
constexpr size_t kColumnsUnknown = 80;

size_t terminal_columns() {
  winsize size{};
  return ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : kColumnsUnknown;
}

}  // namespace

std::string progress_text(double done, double total, std::string_view text, size_t columns) {
  std::string line;
  if (total > 0) {
    const double share = std::clamp(done / total, 0.0, 1.0);
    const auto filled = static_cast<size_t>(share * kBarColumns);
    line = "[" + std::string(filled, '=') + (filled < kBarColumns ? ">" : "") + std::string(kBarColumns - std::min(kBarColumns, filled + 1), ' ') + "] ";
  }
  line += text;
  return line.substr(0, columns > 1 ? columns - 1 : 0);
}

void ProgressLine::show(double done, double total, std::string_view text) {
  if (isatty(STDERR_FILENO) == 0) return;
  std::fprintf(stderr, "\r\033[K%s", progress_text(done, total, text, terminal_columns()).c_str());
  std::fflush(stderr);
  shown_ = true;
}

void ProgressLine::clear() {
  if (shown_) std::fprintf(stderr, "\r\033[K");
  shown_ = false;
}

}  // namespace shoal
