// Regular expressions of tokenizer files, on PCRE2 with UTF-8 and Unicode properties.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "base/status.h"
#include "text/tokenizer/unicode.h"

namespace shoal {

// Immutable; may be used from any thread. Tokenizer files are written for Oniguruma (Ruby syntax): \s, \w and \h are
// translated to what they mean there, ^ and $ match at lines.
class Regex {
 public:
  // InvalidArgument with the offset and PCRE2's reason.
  static StatusOr<Regex> compile(std::string_view pattern);

  // kLimit: the match took more steps than a tokenizer's pattern has any reason to take (catastrophic backtracking).
  enum class Found { kMatch, kNone, kLimit };
  // The first match that begins at or after `from`. REQUIRES: `subject` is well-formed UTF-8, `from` at a code point.
  Found find(std::string_view subject, size_t from, size_t* begin, size_t* end) const;

  // Calls f(begin, end) for every match from left to right. An empty match right after a match is passed over. Stops
  // at kLimit: what is left counts as unmatched, so the worst text costs one limit and stays one piece. Stops where f
  // returns false.
  template <typename F>
  void for_each_match(std::string_view subject, F&& f) const;

 private:
  struct Code;
  explicit Regex(std::shared_ptr<const Code> code) : code_(std::move(code)) {}
  std::shared_ptr<const Code> code_;
};

template <typename F>
void Regex::for_each_match(std::string_view subject, F&& f) const {
  size_t from = 0, last_end = std::string_view::npos, begin = 0, end = 0;
  while (from <= subject.size() && find(subject, from, &begin, &end) == Found::kMatch) {
    if ((begin != end || begin != last_end) && !f(begin, end)) return;
    from = end;
    if (begin == end) from += end < subject.size() ? unicode::step(subject, end) : 1;
    last_end = end;
  }
}

}  // namespace shoal
