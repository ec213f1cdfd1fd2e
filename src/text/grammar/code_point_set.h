// Sets of Unicode scalar values as sorted ranges: what a character class of a grammar or of a regular expression holds.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace shoal::grammar {

struct CodePointRange {
  char32_t first = 0, last = 0;  // both included
  friend bool operator==(const CodePointRange&, const CodePointRange&) = default;
};

constexpr char32_t kCodePointMax = 0x10FFFF;

// Surrogates are never members: they have no UTF-8 form.
class CodePointSet {
 public:
  CodePointSet() = default;
  CodePointSet(std::initializer_list<CodePointRange> ranges);
  static CodePointSet of(std::string_view ascii);  // each character of it

  void add(char32_t first, char32_t last);
  void add(const CodePointSet& other);
  CodePointSet complement() const;
  CodePointSet minus(const CodePointSet& other) const;
  bool contains(char32_t c) const;
  bool empty() const { return ranges_.empty(); }
  const std::vector<CodePointRange>& ranges() const { return ranges_; }  // ascending, not touching

  // As a character class of GBNF, "[a-z\u00E9]". REQUIRES: not empty.
  std::string gbnf() const;

 private:
  std::vector<CodePointRange> ranges_;
};

}  // namespace shoal::grammar
