// White space of answers: ASCII's.
#pragma once

#include <string_view>

namespace shoal {

inline bool is_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

inline std::string_view trim_left(std::string_view text) {
  while (!text.empty() && is_space(text.front())) text.remove_prefix(1);
  return text;
}
inline std::string_view trim_right(std::string_view text) {
  while (!text.empty() && is_space(text.back())) text.remove_suffix(1);
  return text;
}
inline std::string_view trim(std::string_view text) { return trim_left(trim_right(text)); }

}  // namespace shoal
