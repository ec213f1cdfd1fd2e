// std::string_view helpers: Abseil's own view is a different type in Debian's build, so its string functions do not take one.
#pragma once

#include <charconv>
#include <optional>
#include <string>
#include <string_view>

namespace shoal {

// For messages (absl::StrCat takes no std::string_view).
inline std::string own(std::string_view text) { return std::string(text); }

// True, and the text without it, if `text` begins (ends) with `part`.
inline bool drop_prefix(std::string_view& text, std::string_view part) {
  if (!text.starts_with(part)) return false;
  text.remove_prefix(part.size());
  return true;
}
inline bool drop_suffix(std::string_view& text, std::string_view part) {
  if (!text.ends_with(part)) return false;
  text.remove_suffix(part.size());
  return true;
}

inline std::string_view without_blanks(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t' || text.back() == '\r')) text.remove_suffix(1);
  return text;
}

// The whole text as a number; nullopt if it is none of type T.
template <typename T>
std::optional<T> number_in(std::string_view text) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

}  // namespace shoal
