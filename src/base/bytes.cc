#include "base/bytes.h"

#include <cmath>
#include <cstdlib>

#include "absl/strings/ascii.h"
#include "absl/strings/str_format.h"

namespace shoal {

StatusOr<uint64_t> parse_bytes(std::string_view text) {
  const std::string trimmed(absl::StripAsciiWhitespace({text.data(), text.size()}));
  char* end = nullptr;
  const double number = std::strtod(trimmed.c_str(), &end);
  const auto refuse = [&] {
    return invalid_argument("'", std::string(text), "' is not a size; write bytes or a number with a unit, e.g. 2GiB");
  };
  if (end == trimmed.c_str() || !std::isfinite(number) || number < 0) return refuse();
  const std::string unit = absl::AsciiStrToLower(absl::StripAsciiWhitespace(end));
  double factor = 1;
  if (!unit.empty() && unit != "b") {
    const size_t power = std::string_view("kmgt").find(unit[0]);
    const std::string rest = unit.substr(1);
    if (power == std::string_view::npos || (!rest.empty() && rest != "b" && rest != "ib")) return refuse();
    factor = std::pow(rest == "b" ? 1000.0 : 1024.0, static_cast<double>(power + 1));
  }
  const double bytes = number * factor;
  if (bytes > 9e18) return refuse();
  return static_cast<uint64_t>(bytes);
}

std::string format_bytes(uint64_t bytes) {
  if (bytes < kKiB) return absl::StrFormat("%d B", bytes);
  double value = static_cast<double>(bytes);
  const char* units[] = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  int unit = -1;
  while (value >= 1024.0 && unit < 5) {
    value /= 1024.0;
    ++unit;
  }
  return absl::StrFormat("%.*f %s", value < 10 ? 2 : 1, value, units[unit]);
}

}  // namespace shoal
