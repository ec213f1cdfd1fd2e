#include "text/grammar/code_point_set.h"

#include <algorithm>

#include "absl/strings/str_format.h"

namespace shoal::grammar {
namespace {

constexpr char32_t kSurrogateFirst = 0xD800, kSurrogateLast = 0xDFFF;

void append_escaped(std::string& out, char32_t c) {
  const bool plain = c > 0x20 && c < 0x7F && c != '[' && c != ']' && c != '\\' && c != '^' && c != '-';
  if (plain || c == ' ') {
    out += static_cast<char>(c);
  } else if (c <= 0xFF) {
    out += absl::StrFormat("\\x%02X", static_cast<uint32_t>(c));
  } else if (c <= 0xFFFF) {
    out += absl::StrFormat("\\u%04X", static_cast<uint32_t>(c));
  } else {
    out += absl::StrFormat("\\U%08X", static_cast<uint32_t>(c));
  }
}

}  // namespace

CodePointSet::CodePointSet(std::initializer_list<CodePointRange> ranges) {
  for (const CodePointRange& range : ranges) add(range.first, range.last);
}

CodePointSet CodePointSet::of(std::string_view ascii) {
  CodePointSet set;
  for (const char c : ascii) set.add(static_cast<unsigned char>(c), static_cast<unsigned char>(c));
  return set;
}

void CodePointSet::add(char32_t first, char32_t last) {
  last = std::min(last, kCodePointMax);
  if (first > last) return;
  if (first <= kSurrogateLast && last >= kSurrogateFirst) {
    if (first < kSurrogateFirst) add(first, kSurrogateFirst - 1);
    if (last > kSurrogateLast) add(kSurrogateLast + 1, last);
    return;
  }
  // Everything that overlaps or touches [first, last] becomes one range.
  const auto begin = std::lower_bound(ranges_.begin(), ranges_.end(), first,
                                      [](const CodePointRange& range, char32_t c) { return range.last + 1 < c; });
  auto end = begin;
  for (; end != ranges_.end() && end->first <= last + 1; ++end) {
    first = std::min(first, end->first);
    last = std::max(last, end->last);
  }
  ranges_.insert(ranges_.erase(begin, end), {first, last});
}

void CodePointSet::add(const CodePointSet& other) {
  for (const CodePointRange& range : other.ranges_) add(range.first, range.last);
}

CodePointSet CodePointSet::complement() const {
  CodePointSet out;
  char32_t next = 0;
  for (const CodePointRange& range : ranges_) {
    if (range.first > next) out.add(next, range.first - 1);
    next = range.last + 1;
  }
  out.add(next, kCodePointMax);
  return out;
}

CodePointSet CodePointSet::minus(const CodePointSet& other) const {
  CodePointSet without = complement();
  without.add(other);
  return without.complement();
}

bool CodePointSet::contains(char32_t c) const {
  return std::any_of(ranges_.begin(), ranges_.end(), [c](const auto& range) { return range.first <= c && c <= range.last; });
}

std::string CodePointSet::gbnf() const {
  std::string out = "[";
  for (const CodePointRange& range : ranges_) {
    append_escaped(out, range.first);
    if (range.last == range.first) continue;
    if (range.last > range.first + 1) out += '-';
    append_escaped(out, range.last);
  }
  return out + "]";
}

}  // namespace shoal::grammar
