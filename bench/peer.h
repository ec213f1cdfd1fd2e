// What the programs that measure beside a peer share: running its commands, and the middle of several runs.
#pragma once

#include <algorithm>
#include <cstdio>
#include <optional>
#include <string>
#include <vector>

namespace shoal {

// What a shell command prints on its standard output; nothing if it cannot be run or fails.
inline std::optional<std::string> output_of(const std::string& command) {
  FILE* pipe = popen((command + " 2>/dev/null").c_str(), "r");
  if (pipe == nullptr) return std::nullopt;
  std::string text;
  char piece[4096];
  while (const size_t count = fread(piece, 1, sizeof piece, pipe)) text.append(piece, count);
  return pclose(pipe) == 0 ? std::optional(text) : std::nullopt;
}

// 0 for no values.
inline double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values.empty() ? 0 : values[values.size() / 2];
}

}  // namespace shoal
