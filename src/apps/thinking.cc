#include "apps/thinking.h"

#include <algorithm>
#include <utility>

namespace shoal {
namespace {

constexpr std::string_view kBegin = "<think>", kEnd = "</think>";

// How many bytes at the end of `text` could be the beginning of `tag`.
size_t tail_of(std::string_view text, std::string_view tag) {
  for (size_t length = std::min(text.size(), tag.size() - 1); length > 0; --length) {
    if (text.ends_with(tag.substr(0, length))) return length;
  }
  return 0;
}

}  // namespace

std::string ThinkingStyle::push(std::string_view piece) {
  std::string text = std::exchange(kept_, "");
  text += piece;
  std::string out;
  size_t at = 0;
  while (true) {
    const std::string_view tag = thinking_ ? kEnd : kBegin;
    const size_t found = text.find(tag, at);
    if (found == std::string::npos) break;
    out.append(text, at, found - at);
    out += thinking_ ? after_ : before_;
    thinking_ = !thinking_;
    at = found + tag.size();
  }
  const std::string_view rest = std::string_view(text).substr(at);
  const size_t tail = tail_of(rest, thinking_ ? kEnd : kBegin);
  out += rest.substr(0, rest.size() - tail);
  kept_ = rest.substr(rest.size() - tail);
  return out;
}

std::string ThinkingStyle::finish() {
  std::string out = std::exchange(kept_, "");
  if (std::exchange(thinking_, false)) out += after_;
  return out;
}

}  // namespace shoal
