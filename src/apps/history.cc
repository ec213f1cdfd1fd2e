// The history of chats, between sessions.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "apps/line_editor.h"
#include "base/json.h"
#include "nlohmann/json.hpp"

namespace shoal {
namespace {

constexpr size_t kFileBytesMax = 16u << 20;
constexpr size_t kMessageBytesMax = 16u << 10;  // longer ones are pasted documents, which nobody calls back

void write_lines(const std::string& path, int flags, const std::vector<std::string>& messages) {
  const int file = open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW | flags, 0600);
  if (file < 0) return;
  std::string text;
  for (const std::string& message : messages) text += dump_json(message) + "\n";
  size_t done = 0;
  while (done < text.size()) {
    const ssize_t count = write(file, text.data() + done, text.size() - done);
    if (count <= 0) break;
    done += static_cast<size_t>(count);
  }
  close(file);
}

}  // namespace

std::string default_history_path() {
  const char* state = std::getenv("XDG_STATE_HOME");
  const char* home = std::getenv("HOME");
  if (state != nullptr && state[0] == '/') return std::string(state) + "/shoal/history";
  return home != nullptr && home[0] == '/' ? std::string(home) + "/.local/state/shoal/history" : "";
}

std::vector<std::string> read_history(const std::string& path) {
  std::vector<std::string> messages;
  const auto text = read_file(path, kFileBytesMax);
  if (!text.ok()) return messages;
  for (size_t at = 0; at < text->size();) {
    const size_t end = std::min(text->find('\n', at), text->size());
    const auto json = parse_json(std::string_view(*text).substr(at, end - at));
    if (json.ok() && json->is_string()) messages.push_back(json->get<std::string>());
    at = end + 1;
  }
  if (messages.size() > kHistoryMax) messages.erase(messages.begin(), messages.end() - static_cast<ptrdiff_t>(kHistoryMax));
  return messages;
}

void append_history(const std::string& path, const std::string& message) {
  if (path.empty() || message.empty() || message.size() > kMessageBytesMax) return;
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  std::error_code ignored;
  std::filesystem::create_directories(folder.parent_path(), ignored);
  mkdir(folder.c_str(), 0700);
  write_lines(path, O_APPEND, {message});
  const auto text = read_file(path, kFileBytesMax);
  const bool full = !text.ok() || static_cast<size_t>(std::count(text->begin(), text->end(), '\n')) > 2 * kHistoryMax;
  if (full && std::filesystem::exists(path, ignored)) write_lines(path, O_TRUNC, read_history(path));
}

}  // namespace shoal
