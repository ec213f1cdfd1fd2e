#include "text/grammar/regex_gbnf.h"

#include <optional>

#include "absl/strings/ascii.h"
#include "text/grammar/code_point_set.h"
#include "text/grammar/gbnf_builder.h"
#include "text/tokenizer/unicode.h"

namespace shoal::grammar {
namespace {

constexpr size_t kPatternBytesMax = 16u << 10;
constexpr int kNestingMax = 100;
constexpr uint32_t kRepeatMax = 100'000;

const CodePointSet kAscii = {{0, 0x7F}};
const CodePointSet kDigits = {{'0', '9'}};
const CodePointSet kWord = {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}};
const CodePointSet kSpace = {{'\t', '\r'}, {' ', ' '}};
// What \S leaves out: everything that some dialect calls white space.
const CodePointSet kSpaceAnywhere = {{'\t', '\r'}, {0x1C, 0x20}, {0x85, 0x85}, {0xA0, 0xA0}, {0x1680, 0x1680}, {0x2000, 0x200A},
                                     {0x2028, 0x2029}, {0x202F, 0x202F}, {0x205F, 0x205F}, {0x3000, 0x3000}, {0xFEFF, 0xFEFF}};
const CodePointSet kLineEnds = {{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}};
const CodePointSet kJsonEscaped = {{0, 0x1F}, {'"', '"'}, {'\\', '\\'}};

// A set inside a JSON string: members that JSON must escape are spelled with its two-character escapes; control
// characters that have none are left out of sets with other members.
std::string json_set(const CodePointSet& set) {
  std::vector<std::string> alternatives;
  if (const CodePointSet plain = set.minus(kJsonEscaped); !plain.empty()) alternatives.push_back(plain.gbnf());
  std::string shorthand;
  for (const auto& [c, escape] : {std::pair{'"', '"'}, {'\\', '\\'}, {'\b', 'b'}, {'\f', 'f'}, {'\n', 'n'}, {'\r', 'r'}, {'\t', 't'}}) {
    if (set.contains(static_cast<char32_t>(c))) shorthand += escape;
  }
  if (!shorthand.empty()) alternatives.push_back("(\"\\\\\" " + CodePointSet::of(shorthand).gbnf() + ")");
  if (alternatives.empty()) {
    for (char32_t c = 0; c < 0x20; ++c) {
      constexpr char kHex[] = "0123456789abcdef";
      if (set.contains(c)) alternatives.push_back(std::string("\"\\\\u00") + kHex[c >> 4] + kHex[c & 15] + "\"");
    }
  }
  if (alternatives.size() == 1) return alternatives[0];
  std::string out = "(";
  for (const std::string& alternative : alternatives) out += (out.size() > 1 ? " | " : "") + alternative;
  return out + ")";
}

// Recursive descent over the pattern; what is understood is written at once.
class RegexLowering {
 public:
  RegexLowering(std::string_view pattern, RegexUse use) : pattern_(pattern), use_(use) {}

  StatusOr<std::string> run() {
    if (pattern_.size() > kPatternBytesMax) {
      return invalid_argument("the pattern has ", pattern_.size(), " bytes; the limit is ", kPatternBytesMax);
    }
    if (!unicode::is_valid(pattern_)) return invalid_argument("the pattern is not valid UTF-8");
    std::string out = alternation(0);
    if (status_.ok() && at_ < pattern_.size()) fail("')' without '('");
    if (!status_.ok()) return status_;
    return out;
  }

 private:
  bool ok() const { return status_.ok(); }
  bool more() const { return ok() && at_ < pattern_.size(); }
  char peek() const { return at_ < pattern_.size() ? pattern_[at_] : '\0'; }
  bool take(std::string_view text) {
    if (pattern_.substr(at_, text.size()) != text) return false;
    at_ += text.size();
    return true;
  }
  void fail(std::string_view cause) {
    if (ok()) status_ = invalid_argument("regular expression, offset ", at_, ": ", std::string(cause));
  }

  std::string set(const CodePointSet& members) {
    if (members.empty()) {
      fail("a character class that matches nothing");
      return "";
    }
    return use_ == RegexUse::kJsonString ? json_set(members) : members.gbnf();
  }
  std::string anything() { return set(CodePointSet().complement()) + "*"; }

  std::string alternation(int depth) {
    if (depth > kNestingMax) fail("groups are nested too deeply");
    std::string out = sequence(depth);
    while (more() && peek() == '|') {
      ++at_;
      out += " | " + sequence(depth);
    }
    return out;
  }

  // One alternative. At the top, ^ and $ are accepted at its ends; there an open end of a JSON pattern is filled.
  std::string sequence(int depth) {
    const bool top = depth == 0;
    const bool open = top && use_ == RegexUse::kJsonString;
    std::string out;
    if (top && take("^")) {
      while (take("^")) {}
    } else if (open) {
      out += anything();
    }
    bool anchored = false;
    while (more() && peek() != '|' && peek() != ')') {
      if (top && take("$")) {
        anchored = true;
        while (take("$")) {}
        if (at_ < pattern_.size() && peek() != '|') fail("'$' is supported at the end of an alternative only");
        break;
      }
      const std::string item = quantified(depth);
      if (!item.empty()) out += (out.empty() ? "" : " ") + item;
    }
    if (open && !anchored) out += (out.empty() ? "" : " ") + anything();
    return out.empty() ? "\"\"" : out;
  }

  std::string quantified(int depth) {
    std::string item = atom(depth);
    if (!more()) return item;
    std::string count;
    if (peek() == '*' || peek() == '+' || peek() == '?') {
      count = std::string(1, pattern_[at_++]);
    } else if (peek() == '{') {
      count = braces();
    }
    if (count.empty()) return item;
    if (take("+")) fail("possessive quantifiers are not supported");
    take("?");  // lazy: the same texts match
    if (more() && (peek() == '*' || peek() == '+' || peek() == '?')) fail("a quantifier after a quantifier");
    return item.empty() ? item : item + count;
  }

  // {n} {n,} {n,m}; empty if the brace is not a quantifier but a character.
  std::string braces() {
    const size_t begin = at_;
    ++at_;
    const auto number = [&]() -> std::optional<uint32_t> {
      uint32_t value = 0;
      const size_t first = at_;
      while (absl::ascii_isdigit(static_cast<unsigned char>(peek()))) value = std::min<uint32_t>(kRepeatMax + 1, value * 10 + (pattern_[at_++] - '0'));
      return at_ == first ? std::nullopt : std::optional(value);
    };
    const auto low = number();
    const bool comma = take(",");
    const auto high = comma ? number() : low;
    if (!low || !take("}")) {
      at_ = begin;
      return "";
    }
    if (*low > kRepeatMax || (high && *high > kRepeatMax)) fail("a repetition of more than 100000 times");
    if (high && *high < *low) fail("a repetition whose numbers are out of order");
    if (!comma) return absl::StrCat("{", *low, "}");
    return high ? absl::StrCat("{", *low, ",", *high, "}") : absl::StrCat("{", *low, ",}");
  }

  std::string atom(int depth) {
    switch (peek()) {
      case '(': return group(depth);
      case '[': return set(char_class());
      case '.': ++at_; return set(kLineEnds.complement());
      case '\\': return set(escape(false));
      case '^': fail("'^' is supported at the beginning of an alternative only"); return "";
      case '$': fail("'$' is supported at the end of an alternative only"); return "";
      case '*': case '+': case '?': fail("a quantifier without anything before it"); return "";
      default: break;
    }
    const char32_t c = code_point();
    return use_ == RegexUse::kJsonString ? set({{c, c}}) : GbnfBuilder::literal(unicode::encode(c));
  }

  std::string group(int depth) {
    ++at_;
    if (take("?")) {
      if (take("=") || take("!")) fail("look-ahead is not supported");
      if (take("<=") || take("<!")) fail("look-behind is not supported");
      if (take(">")) fail("atomic groups are not supported");
      if (take("<") || take("P<")) {
        while (more() && peek() != '>') ++at_;
        if (!take(">")) fail("a group name without '>'");
      } else if (!take(":")) {
        fail("inline flags and this kind of group are not supported");
      }
    }
    std::string inner = alternation(depth + 1);
    if (ok() && !take(")")) fail("'(' without ')'");
    return "(" + inner + ")";
  }

  char32_t code_point() {
    size_t bytes = 1;
    const char32_t c = unicode::decode(pattern_, at_, &bytes);
    at_ += bytes;
    return c;
  }

  CodePointSet char_class() {
    ++at_;
    const bool negated = in_negated_class_ = take("^");
    shorthands_.clear();
    CodePointSet members;
    while (ok()) {
      if (at_ >= pattern_.size()) {
        fail("'[' without ']'");
        break;
      }
      if (take("]")) break;
      class_item(members);
    }
    in_negated_class_ = false;
    for (const char* both : {"dD", "wW", "sS"}) {  // [\s\S] and its like: everything
      if (shorthands_.find(both[0]) != std::string::npos && shorthands_.find(both[1]) != std::string::npos) members = CodePointSet().complement();
    }
    return negated ? members.complement() : members;
  }

  // \d and its like. Alone they hold what all dialects agree on; what a negated class leaves out is all that any means.
  CodePointSet shorthand(char letter) {
    shorthands_ += letter;
    switch (letter) {
      case 'd': return kDigits;
      case 'w': return kWord;
      case 's': return in_negated_class_ ? kSpaceAnywhere : kSpace;
      case 'D': return in_negated_class_ ? kDigits.complement() : kAscii.minus(kDigits);
      case 'W': return in_negated_class_ ? kWord.complement() : kAscii.minus(kWord);
      default: return (in_negated_class_ ? kSpace : kSpaceAnywhere).complement();
    }
  }

  void class_item(CodePointSet& members) {
    const auto one = [&]() { return peek() == '\\' ? escape(true) : single(code_point()); };
    const CodePointSet low = one();
    const bool range = peek() == '-' && at_ + 1 < pattern_.size() && pattern_[at_ + 1] != ']';
    if (!ok() || !range || !is_single(low)) return members.add(low);
    ++at_;
    const CodePointSet high = one();
    if (!is_single(high)) return fail("a character range must end in a character");
    const char32_t first = low.ranges()[0].first, last = high.ranges()[0].first;
    if (first > last) return fail("a character range whose ends are out of order");
    members.add(first, last);
  }

  static CodePointSet single(char32_t c) { return {{c, c}}; }
  static bool is_single(const CodePointSet& set) {
    return set.ranges().size() == 1 && set.ranges()[0].first == set.ranges()[0].last;
  }

  CodePointSet escape(bool in_class) {
    ++at_;
    if (at_ >= pattern_.size()) {
      fail("'\\' at the end");
      return {};
    }
    const char32_t c = code_point();
    switch (c) {
      case 'd': case 'w': case 's': case 'D': case 'W': case 'S': return shorthand(static_cast<char>(c));
      case 't': return single('\t');
      case 'n': return single('\n');
      case 'r': return single('\r');
      case 'f': return single('\f');
      case 'v': return single('\v');
      case 'x': return hex(2);
      case 'u': return take("{") ? braced_hex() : hex(4);
      case 'b': if (in_class) return single('\b'); [[fallthrough]];
      case 'B': case 'A': case 'z': case 'Z': case 'G': fail("word boundaries and this kind of anchor are not supported"); return {};
      case 'p': case 'P': fail("Unicode properties (\\p) are not supported"); return {};
      case 'k': fail("back-references are not supported"); return {};
      case 'c': {
        const char letter = peek();
        if (!absl::ascii_isalpha(static_cast<unsigned char>(letter))) fail("'\\c' needs a letter");
        ++at_;
        return single(static_cast<char32_t>(letter % 32));
      }
      case '0': return single(0);
      default: break;
    }
    if (c >= '1' && c <= '9') fail("back-references are not supported");
    if (c < 0x80 && absl::ascii_isalnum(static_cast<unsigned char>(c))) fail("an unknown escape");
    return single(c);
  }

  CodePointSet hex(int digits) {
    char32_t value = 0;
    for (int i = 0; i < digits; ++i, ++at_) {
      if (!absl::ascii_isxdigit(static_cast<unsigned char>(peek()))) {
        fail("an escape with too few hexadecimal digits");
        return {};
      }
      value = value * 16 + hex_digit(peek());
    }
    const bool high_surrogate = value >= 0xD800 && value <= 0xDBFF;
    if (high_surrogate && digits == 4 && take("\\u")) {
      const CodePointSet low = low_surrogate();
      return low.empty() ? low : single(0x10000 + ((value - 0xD800) << 10) + low.ranges()[0].first);
    }
    if (value >= 0xD800 && value <= 0xDFFF) fail("a lone surrogate");
    return single(value);
  }

  // The ten bits of the second half of a surrogate pair.
  CodePointSet low_surrogate() {
    char32_t value = 0;
    for (int i = 0; i < 4; ++i, ++at_) {
      if (absl::ascii_isxdigit(static_cast<unsigned char>(peek()))) value = value * 16 + hex_digit(peek());
    }
    if (value < 0xDC00 || value > 0xDFFF || at_ > pattern_.size()) {
      fail("a lone surrogate");
      return {};
    }
    return single(value - 0xDC00);
  }

  CodePointSet braced_hex() {
    char32_t value = 0;
    while (absl::ascii_isxdigit(static_cast<unsigned char>(peek())) && value <= kCodePointMax) value = value * 16 + hex_digit(pattern_[at_++]);
    if (!take("}") || value > kCodePointMax || (value >= 0xD800 && value <= 0xDFFF)) {
      fail("'\\u{' without a code point and '}'");
      return {};
    }
    return single(value);
  }

  static char32_t hex_digit(char c) {
    return static_cast<char32_t>(absl::ascii_isdigit(static_cast<unsigned char>(c)) ? c - '0' : absl::ascii_tolower(static_cast<unsigned char>(c)) - 'a' + 10);
  }

  const std::string_view pattern_;
  const RegexUse use_;
  size_t at_ = 0;
  bool in_negated_class_ = false;
  std::string shorthands_;  // of the class that is being read
  Status status_ = OkStatus();
};

}  // namespace

StatusOr<std::string> regex_to_gbnf(std::string_view pattern, RegexUse use) { return RegexLowering(pattern, use).run(); }

}  // namespace shoal::grammar
