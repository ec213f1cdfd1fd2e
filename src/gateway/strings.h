// Small text helpers in terms of std::string_view (Abseil's own view is a different type in Debian's build).
#pragma once

#include <string>
#include <string_view>

#include "absl/strings/ascii.h"

namespace shoal {

// For absl::StrCat and log_*(), which take no std::string_view.
inline std::string str(std::string_view text) { return std::string(text); }

// Without ASCII white space at either end.
inline std::string_view trimmed(std::string_view text) {
  while (!text.empty() && absl::ascii_isspace(static_cast<unsigned char>(text.front()))) text.remove_prefix(1);
  while (!text.empty() && absl::ascii_isspace(static_cast<unsigned char>(text.back()))) text.remove_suffix(1);
  return text;
}

// Of ASCII letters, as names of headers are compared.
inline bool equal_ignoring_case(std::string_view a, std::string_view b) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i) {
    if (absl::ascii_tolower(static_cast<unsigned char>(a[i])) != absl::ascii_tolower(static_cast<unsigned char>(b[i]))) {
      return false;
    }
  }
  return true;
}

}  // namespace shoal
