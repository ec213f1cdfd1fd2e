// The terminal: lines in, text out, Ctrl-C as a question rather than an end.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace shoal {

bool stdin_is_terminal();
bool stdout_is_terminal();
size_t stdout_columns();  // 0: not a terminal, or one that does not say

// Text in bold where stdout is a terminal and NO_COLOR is not set.
std::string emphasised(std::string_view text);

// Whether text may be dimmed: stdout is a terminal and NO_COLOR is not set.
bool dims_text();

// Writes and flushes; false once nobody reads any more.
bool show_text(std::string_view text);
// A line to stderr, beside what is the result.
void note(const std::string& line);

// From now on Ctrl-C only sets a flag. REQUIRES: block_stop_signals() before the first thread was started, so that the
// signal reaches this one.
void catch_interrupts();
bool interrupted();         // has Ctrl-C been pressed since the last clear_interrupt()?
void clear_interrupt();

// Lines of stdin. Not buffered by stdio, so that Ctrl-C is noticed while waiting.
class LineReader {
 public:
  enum class End { kNone, kEof, kInterrupt };
  // The next line without its newline. nullopt: see end().
  std::optional<std::string> next();
  End end() const { return end_; }

 private:
  std::string buffered_;
  End end_ = End::kNone;
};

// Everything until the end of stdin, at most bytes_max bytes.
std::string read_all_stdin(size_t bytes_max);

}  // namespace shoal
