#include "base/nearest.h"

#include <algorithm>
#include <vector>

#include "absl/strings/ascii.h"

namespace shoal {
namespace {

constexpr size_t kNameBytesMax = 256;  // what is longer was not mistyped, and takes long to compare
constexpr size_t kPartBytesMin = 3;

std::string lower(std::string_view text) { return absl::AsciiStrToLower({text.data(), text.size()}); }

}  // namespace

size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::vector<size_t>> of(a.size() + 1, std::vector<size_t>(b.size() + 1));
  for (size_t i = 0; i <= a.size(); ++i) {
    for (size_t j = 0; j <= b.size(); ++j) {
      if (i == 0 || j == 0) {
        of[i][j] = i + j;
        continue;
      }
      of[i][j] = std::min({of[i - 1][j] + 1, of[i][j - 1] + 1, of[i - 1][j - 1] + (a[i - 1] != b[j - 1])});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) of[i][j] = std::min(of[i][j], of[i - 2][j - 2] + 1);
    }
  }
  return of[a.size()][b.size()];
}

namespace {

// A third of the letters may be wrong, and one of a short name.
bool is_near(size_t edits, std::string_view given, std::string_view name) {
  return edits <= std::max<size_t>(1, std::max(given.size(), name.size()) / 3);
}

}  // namespace

std::optional<std::string_view> nearest_name(std::string_view given, std::span<const std::string_view> names) {
  if (given.empty() || given.size() > kNameBytesMax) return std::nullopt;
  const std::string word = lower(given);
  std::optional<std::string_view> best;
  size_t fewest = SIZE_MAX;
  for (const std::string_view name : names) {
    if (name.size() > kNameBytesMax) continue;
    const std::string candidate = lower(name);
    const size_t count = edit_distance(word, candidate);
    const bool part = word.size() >= kPartBytesMin && candidate.find(word) != std::string::npos;
    if (count >= fewest || !(part || is_near(count, word, candidate))) continue;
    fewest = count;
    best = name;
  }
  return best;
}

std::string did_you_mean(std::string_view given, std::span<const std::string_view> names) {
  const auto nearest = nearest_name(given, names);
  return nearest ? "; did you mean '" + std::string(*nearest) + "'?" : "";
}

std::string did_you_mean(std::string_view given, std::span<const std::string> names) {
  const std::vector<std::string_view> views(names.begin(), names.end());
  return did_you_mean(given, views);
}

}  // namespace shoal
