// Ranges of numbers as grammars: digit by digit, exact.
#include <algorithm>
#include <cmath>

#include "absl/strings/numbers.h"
#include "absl/strings/str_format.h"
#include "text/grammar/schema_lowering.h"

namespace shoal::grammar {
namespace {

constexpr int64_t kIntegerMax = 9'999'999'999'999'999;  // 16 digits, as an unbounded integer has them
constexpr int64_t kWholeMax = 999'999'999'999'999;      // before the point of a bounded number: 15 digits are exact
constexpr size_t kFractionMax = 15;

std::string digit(char from, char to) { return from == to ? std::string("\"") + from + "\"" : std::string("[") + from + "-" + to + "]"; }
std::string digits(size_t least, size_t most) { return most == 0 ? "" : least == most ? absl::StrCat("[0-9]{", least, "}") : absl::StrCat("[0-9]{", least, ",", most, "}"); }
bool all(std::string_view text, char c) { return text.find_first_not_of(c) == std::string_view::npos; }
std::string joined(std::string a, const std::string& b) { return b.empty() ? a : a.empty() ? b : a + " " + b; }

// Digit strings of one length from low to high.
std::string same_length(std::string_view low, std::string_view high) {
  if (low.empty()) return "";
  if (all(low, '0') && all(high, '9')) return digits(low.size(), low.size());
  if (low[0] == high[0]) return joined(digit(low[0], low[0]), same_length(low.substr(1), high.substr(1)));
  const size_t rest = low.size() - 1;
  char first = low[0], last = high[0];
  std::vector<std::string> parts;
  if (!all(low.substr(1), '0')) parts.push_back(joined(digit(first, first), same_length(low.substr(1), std::string(rest, '9')))), ++first;
  std::string upper;
  if (!all(high.substr(1), '9')) upper = joined(digit(last, last), same_length(std::string(rest, '0'), high.substr(1))), --last;
  if (first <= last) parts.push_back(joined(digit(first, last), digits(rest, rest)));
  if (!upper.empty()) parts.push_back(upper);
  return parenthesised(parts);
}

// Decimal integers without leading zeros in [low, high]. REQUIRES: 0 <= low <= high.
std::string whole_range(int64_t low, int64_t high) {
  std::vector<std::string> parts;
  int64_t begin = 0, end = 9;  // of the numbers with `length` digits
  for (size_t length = 1; begin <= high; ++length, begin = end + 1, end = end * 10 + 9) {
    const int64_t from = std::max(low, begin), to = std::min(high, end);
    if (from > to) continue;
    parts.push_back(length > 1 && from == begin && to == end ? joined("[1-9]", digits(length - 1, length - 1))
                                                             : same_length(absl::StrCat(from), absl::StrCat(to)));
  }
  return parenthesised(parts);
}

// ---- decimal fractions ----------------------------------------------------------------------------------------------

// A bound's absolute value: whole part and the digits after the point, without trailing zeros.
struct Decimal {
  int64_t whole = 0;
  std::string fraction;
  bool operator<(const Decimal& o) const { return whole != o.whole ? whole < o.whole : fraction < o.fraction; }
  bool zero() const { return whole == 0 && fraction.empty(); }
};

StatusOr<Decimal> decimal_of(const OrderedJson& number) {
  const double value = std::abs(number.get<double>());
  Decimal out;
  if (number.is_number_integer() || value == std::floor(value)) {
    out.whole = value > static_cast<double>(kWholeMax) ? kWholeMax : static_cast<int64_t>(value);
    return out;
  }
  std::string text = absl::StrFormat("%.*f", static_cast<int>(kFractionMax), value);
  // The shortest of the texts that read back as the same number is the one that was written.
  for (size_t places = 1; places < kFractionMax; ++places) {
    const std::string shorter = absl::StrFormat("%.*f", static_cast<int>(places), value);
    double back = 0;
    if (absl::SimpleAtod(shorter, &back) && back == value) {
      text = shorter;
      break;
    }
  }
  double back = 0;
  const size_t point = text.find('.');
  if (!absl::SimpleAtod(text, &back) || back != value || !absl::SimpleAtoi(text.substr(0, point), &out.whole) || out.whole > kWholeMax) {
    return invalid_argument("the bound ", number.dump(), " has too many digits");
  }
  out.fraction = text.substr(point + 1);
  while (!out.fraction.empty() && out.fraction.back() == '0') out.fraction.pop_back();
  return out;
}

// Digits after the point, up to `room` of them, that are above, below or between given ones; a text that ends counts as
// followed by zeros. `may_end`: no digit at all is a text too. Each returns an expression, or nullopt where nothing fits.
using Maybe = std::optional<std::string>;

Maybe any_or_nothing(const std::vector<std::string>& parts) {
  return parts.empty() ? std::nullopt : Maybe(parenthesised(parts));
}

Maybe above(std::string_view bound, bool exclusive, size_t room, bool may_end = true) {
  if (bound.empty()) {
    if (room == 0) return exclusive || !may_end ? std::nullopt : Maybe("\"\"");
    if (!exclusive) return digits(may_end ? 0 : 1, room);
    return joined(absl::StrCat("\"0\"{0,", room - 1, "} [1-9]"), digits(0, room - 1));
  }
  if (room == 0) return std::nullopt;
  std::vector<std::string> parts;
  if (bound[0] < '9') parts.push_back(joined(digit(static_cast<char>(bound[0] + 1), '9'), digits(0, room - 1)));
  if (const Maybe rest = above(bound.substr(1), exclusive, room - 1)) parts.push_back(joined(digit(bound[0], bound[0]), *rest));
  return any_or_nothing(parts);
}

Maybe below(std::string_view bound, bool exclusive, size_t room, bool may_end = true) {
  std::vector<std::string> parts;
  if (may_end && !(bound.empty() && exclusive)) parts.push_back("\"\"");  // what is cut short is less
  if (room > 0 && bound.empty() && !exclusive) parts.push_back(absl::StrCat("\"0\"{1,", room, "}"));
  if (room > 0 && !bound.empty()) {
    if (bound[0] > '0') parts.push_back(joined(digit('0', static_cast<char>(bound[0] - 1)), digits(0, room - 1)));
    if (const Maybe rest = below(bound.substr(1), exclusive, room - 1)) parts.push_back(joined(digit(bound[0], bound[0]), *rest));
  }
  return any_or_nothing(parts);
}

Maybe between(std::string_view low, bool low_exclusive, std::string_view high, bool high_exclusive, size_t room, bool may_end = true) {
  if (low.empty() && !low_exclusive) return below(high, high_exclusive, room, may_end);
  if (room == 0 || high.empty()) return std::nullopt;
  const char l = low.empty() ? '0' : low[0], h = high[0];
  const std::string_view low_rest = low.empty() ? low : low.substr(1), high_rest = high.substr(1);
  std::vector<std::string> parts;
  const auto add = [&](char first, char last, const Maybe& rest) {
    if (first <= last && rest) parts.push_back(joined(digit(first, last), *rest));
  };
  if (l == h) {
    add(l, l, between(low_rest, low_exclusive, high_rest, high_exclusive, room - 1));
  } else if (l < h) {
    add(l, l, above(low_rest, low_exclusive, room - 1));
    add(static_cast<char>(l + 1), static_cast<char>(h - 1), digits(0, room - 1));
    add(h, h, below(high_rest, high_exclusive, room - 1));
  }
  return any_or_nothing(parts);
}

struct End {
  Decimal at;
  bool exclusive = false;
  bool bounded = true;
};

size_t room_for(const End& low, const End& high) {
  const size_t whole_digits = std::max(absl::StrCat(low.at.whole).size(), high.bounded ? absl::StrCat(high.at.whole).size() : 1);
  const size_t written = std::max(low.at.fraction.size(), high.at.fraction.size());
  return std::max(written + 1, std::clamp<size_t>(15 - std::min<size_t>(whole_digits, 14), 1, 10));
}

// Non-negative numbers without exponent from `low` to `high`; empty if there are none.
std::vector<std::string> magnitudes(const End& low, const End& high) {
  const size_t room = room_for(low, high);
  const int64_t first = low.at.whole, last = high.bounded ? high.at.whole : kWholeMax;
  std::vector<std::string> parts;
  const auto with_fraction = [&](int64_t whole, const Maybe& after, bool whole_alone) {
    const std::string text = whole_range(whole, whole);
    if (whole_alone) parts.push_back(text);
    if (after) parts.push_back(text + " \".\" " + *after);
  };
  const std::string any = "(\".\" " + digits(1, room) + ")?";
  if (high.bounded && first == last) {
    const bool alone = low.at.fraction.empty() && !low.exclusive && !(high.at.fraction.empty() && high.exclusive);
    with_fraction(first, between(low.at.fraction, low.exclusive, high.at.fraction, high.exclusive, room, false), alone);
    return parts;
  }
  int64_t begin = first, end = last;  // whole parts after which anything may follow
  if (!low.at.fraction.empty() || low.exclusive) {
    with_fraction(first, above(low.at.fraction, low.exclusive, room, false), false);
    ++begin;
  }
  if (high.bounded) {
    --end;
    with_fraction(last, below(high.at.fraction, high.exclusive, room, false), !(high.at.fraction.empty() && high.exclusive));
  }
  if (begin <= end) parts.push_back(whole_range(begin, end) + " " + any);
  return parts;
}

}  // namespace

StatusOr<std::string> integer_expression(const NumberRange& range) {
  int64_t low = -kIntegerMax, high = kIntegerMax;
  const double most = static_cast<double>(kIntegerMax);
  const auto whole = [&](const NumberBound& bound, bool is_low) -> int64_t {
    const double value = std::clamp(bound.value.get<double>(), -most, most);
    int64_t at = bound.value.is_number_integer() && std::abs(value) < most ? bound.value.get<int64_t>()
                                                                           : static_cast<int64_t>(is_low ? std::ceil(value) : std::floor(value));
    const bool exact = static_cast<double>(at) == bound.value.get<double>();
    if (bound.exclusive && exact) at += is_low ? 1 : -1;
    return at;
  };
  if (range.low) low = std::max(low, whole(*range.low, true));
  if (range.high) high = std::min(high, whole(*range.high, false));
  const bool beyond = (range.low && range.low->value.get<double>() > most) || (range.high && range.high->value.get<double>() < -most);
  if (low > high || beyond) return invalid_argument("the bounds leave no integer of at most 16 digits");
  std::vector<std::string> parts;
  if (low < 0) parts.push_back("\"-\" " + whole_range(std::max<int64_t>(1, -high), -low));
  if (high >= 0) parts.push_back(whole_range(std::max<int64_t>(low, 0), high));
  return "(" + parenthesised(parts) + ")";
}

StatusOr<std::string> number_expression(const NumberRange& range) {
  End low{.bounded = false}, high{.bounded = false};
  bool low_negative = true, high_negative = false;
  if (range.low) {
    ASSIGN_OR_RETURN(low.at, decimal_of(range.low->value));
    low = {low.at, range.low->exclusive, true};
    low_negative = range.low->value.get<double>() < 0;
  }
  if (range.high) {
    ASSIGN_OR_RETURN(high.at, decimal_of(range.high->value));
    high = {high.at, range.high->exclusive, true};
    high_negative = range.high->value.get<double>() < 0;
  }
  if (range.low && range.high) {
    const double a = range.low->value.get<double>(), b = range.high->value.get<double>();
    if (a > b || (a == b && (low.exclusive || high.exclusive))) return invalid_argument("the bounds leave no number");
  }
  const double most = static_cast<double>(kWholeMax);
  if ((range.low && range.low->value.get<double>() > most) || (range.high && range.high->value.get<double>() < -most)) {
    return invalid_argument("the bounds leave no number of at most 15 digits before the point");
  }
  const End zero;
  std::vector<std::string> parts;
  if (low_negative) {
    // -m for every m from the end nearer to zero to the other one
    const End nearer = high_negative || (range.high && high.at.zero()) ? high : zero;
    for (const std::string& part : magnitudes(nearer, low)) parts.push_back("\"-\" " + part);
  }
  if (!high_negative) {
    for (std::string& part : magnitudes(range.low && !low_negative ? low : zero, high)) parts.push_back(std::move(part));
  }
  if (parts.empty()) return invalid_argument("the bounds leave no number of so many digits");
  return "(" + parenthesised(parts) + ")";
}

}  // namespace shoal::grammar
