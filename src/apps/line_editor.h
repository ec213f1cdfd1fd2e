// Lines from a person: edited and remembered where both ends are a terminal, plain otherwise.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "apps/terminal.h"

namespace shoal {

class LineSource {
 public:
  virtual ~LineSource() = default;
  // The next line without its newline, after `prompt` and a blank; what was pasted in one go is one line, which may hold newlines. nullopt: see end().
  virtual std::optional<std::string> next(const std::string& prompt) = 0;
  virtual LineReader::End end() const = 0;
  // Puts a message into the history, for the arrow keys and the next session.
  virtual void remember(const std::string& message) = 0;
};

// `history_path`: where messages are kept between sessions, for its owner alone; empty: nowhere.
std::unique_ptr<LineSource> make_line_source(const std::string& history_path);

// $XDG_STATE_HOME/shoal/history, or below ~/.local/state; empty if there is no home.
std::string default_history_path();

// The file holds one message per line, as a JSON string; the newest kHistoryMax count.
constexpr size_t kHistoryMax = 1000;
std::vector<std::string> read_history(const std::string& path);
// Appends, making the file (mode 0600) and its folder (0700) if need be; shortens it when it has twice the messages it
// may have. A history that cannot be kept is no error.
void append_history(const std::string& path, const std::string& message);

}  // namespace shoal
