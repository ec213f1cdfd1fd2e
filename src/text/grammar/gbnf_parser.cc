#include "text/grammar/gbnf_parser.h"

#include <algorithm>
#include <optional>

#include "absl/strings/ascii.h"
#include "text/tokenizer/string_map.h"
#include "text/tokenizer/unicode.h"

namespace shoal::grammar {
namespace {

bool is_name_char(char c) { return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '-' || c == '_'; }
bool is_digit(char c) { return absl::ascii_isdigit(static_cast<unsigned char>(c)); }

class GbnfParser {
 public:
  GbnfParser(std::string_view text, const GrammarLimits& limits) : text_(text), limits_(limits) {}

  StatusOr<ParsedGrammar> run() {
    if (text_.size() > limits_.bytes_max) return invalid_argument("the grammar has ", text_.size(), " bytes; the limit is ", limits_.bytes_max);
    if (!unicode::is_valid(text_)) return invalid_argument("the grammar is not valid UTF-8");
    skip(true);
    while (ok() && at_ < text_.size()) rule();
    if (!ok()) return status_;
    for (const auto& r : out_.rules) {
      if (!r.defined) return invalid_argument("the grammar has no rule '", r.name, "'", r.name == "root" ? ", with which it begins" : ", which another one uses");
    }
    const auto root = rule_ids_.find("root");
    if (root == rule_ids_.end()) return invalid_argument("the grammar has no rule 'root', with which it begins");
    out_.root = root->second;
    return std::move(out_);
  }

 private:
  bool ok() const { return status_.ok(); }
  char peek(size_t ahead = 0) const { return at_ + ahead < text_.size() ? text_[at_ + ahead] : '\0'; }
  bool take(std::string_view word) {
    if (text_.substr(at_, word.size()) != word) return false;
    at_ += word.size();
    return true;
  }
  void fail(std::string_view cause) {
    if (!ok()) return;
    const auto line = 1 + std::count(text_.begin(), text_.begin() + static_cast<ptrdiff_t>(std::min(at_, text_.size())), '\n');
    status_ = invalid_argument("grammar, line ", line, ": ", std::string(cause));
  }

  // White space and comments; line breaks too if they do not end anything.
  void skip(bool lines) {
    while (at_ < text_.size()) {
      const char c = text_[at_];
      if (c == '#') {
        while (at_ < text_.size() && text_[at_] != '\n' && text_[at_] != '\r') ++at_;
      } else if (c == ' ' || c == '\t' || (lines && (c == '\n' || c == '\r'))) {
        ++at_;
      } else {
        break;
      }
    }
  }

  std::string_view name() {
    const size_t begin = at_;
    while (is_name_char(peek())) ++at_;
    if (at_ == begin) fail("a rule's name is expected");
    return text_.substr(begin, at_ - begin);
  }

  uint32_t rule_id(std::string_view name) {
    const auto [it, is_new] = rule_ids_.try_emplace(std::string(name), static_cast<uint32_t>(out_.rules.size()));
    if (is_new) {
      out_.rules.push_back({std::string(name), 0, false});
      if (out_.rules.size() > limits_.rules_max) fail("too many rules");
    }
    return it->second;
  }

  ExprId add(Expr expr) {
    if (out_.exprs.size() >= limits_.exprs_max) fail("the grammar is too large");
    if (!ok()) return 0;
    out_.exprs.push_back(std::move(expr));
    return static_cast<ExprId>(out_.exprs.size() - 1);
  }

  void rule() {
    const std::string_view rule_name = name();
    if (!ok()) return;
    const uint32_t id = rule_id(rule_name);
    skip(false);
    if (!take("::=")) return fail("'::=' is expected after a rule's name");
    if (out_.rules[id].defined) return fail("the rule '" + std::string(rule_name) + "' is defined twice");
    out_.rules[id].defined = true;
    skip(true);
    const ExprId body = alternatives(0);
    if (!ok()) return;
    out_.rules[id].body = body;
    if (at_ < text_.size() && peek() != '\n' && peek() != '\r') return fail("the end of the line is expected");
    skip(true);
  }

  ExprId alternatives(int depth) {
    if (depth > limits_.nesting_max) fail("parentheses are nested too deeply");
    Expr all{Expr::Kind::kAlternatives};
    all.children.push_back(sequence(depth));
    while (ok() && next_alternative(depth > 0)) {
      skip(true);
      all.children.push_back(sequence(depth));
    }
    return all.children.size() == 1 ? all.children[0] : add(std::move(all));
  }

  // Also finds a '|' at the beginning of the next line.
  bool next_alternative(bool nested) {
    const size_t before = at_;
    skip(true);
    if (take("|")) return true;
    if (!nested) at_ = before;
    return false;
  }

  ExprId sequence(int depth) {
    Expr all{Expr::Kind::kSequence};
    while (ok()) {
      skip(depth > 0);
      const char c = peek();
      if (c == '\0' || c == '|' || c == ')' || c == '\n' || c == '\r') break;
      const ExprId item = element(depth);
      if (ok()) all.children.push_back(repetition(item));
    }
    return all.children.size() == 1 ? all.children[0] : add(std::move(all));
  }

  ExprId element(int depth) {
    const char c = peek();
    if (c == '"') return literal();
    if (c == '[') return char_class();
    if (c == '<') return token();
    if (c == '.') {
      ++at_;
      return add_set(CodePointSet().complement());
    }
    if (c == '(') {
      ++at_;
      skip(true);
      const ExprId inner = alternatives(depth + 1);
      skip(true);
      if (ok() && !take(")")) fail("')' is expected");
      return inner;
    }
    if (is_name_char(c)) return add({Expr::Kind::kRule, rule_id(name())});
    fail(c == '!' ? "negated tokens are not supported" : std::string("unexpected '") + c + "'");
    return 0;
  }

  ExprId repetition(ExprId item, int chained = 0) {
    constexpr int kChainedMax = 8;  // a?*+{2}
    if (chained > kChainedMax) fail("too many repetitions of a repetition");
    skip(false);
    uint32_t least = 0, most = kNoLimit;
    switch (peek()) {
      case '*': break;
      case '+': least = 1; break;
      case '?': most = 1; break;
      case '{': return braces(item, chained);
      default: return item;
    }
    ++at_;
    return ok() ? repetition(add({Expr::Kind::kRepeat, 0, least, most, {item}}), chained + 1) : 0;
  }

  ExprId braces(ExprId item, int chained) {
    ++at_;
    skip(false);
    const auto number = [&]() -> std::optional<uint32_t> {
      if (!is_digit(peek())) return std::nullopt;
      uint64_t value = 0;
      while (is_digit(peek())) value = std::min<uint64_t>(uint64_t{limits_.repeat_max} + 1, value * 10 + static_cast<uint64_t>(text_[at_++] - '0'));
      if (value > limits_.repeat_max) fail("a repetition of more than " + std::to_string(limits_.repeat_max) + " times");
      skip(false);
      return static_cast<uint32_t>(value);
    };
    const auto least = number();
    uint32_t most = least.value_or(0);
    if (take(",")) {
      skip(false);
      most = number().value_or(kNoLimit);
    } else if (!least) {
      fail("a number is expected after '{'");
    }
    if (!take("}")) fail("'}' is expected");
    if (most < least.value_or(0)) fail("a repetition whose numbers are out of order");
    return ok() ? repetition(add({Expr::Kind::kRepeat, 0, least.value_or(0), most, {item}}), chained + 1) : 0;
  }

  ExprId literal() {
    ++at_;
    std::string bytes;
    while (ok() && peek() != '"') {
      if (at_ >= text_.size() || peek() == '\n') {
        fail("'\"' is expected");
        break;
      }
      unicode::append(bytes, character());
    }
    ++at_;
    out_.texts.push_back(std::move(bytes));
    return add({Expr::Kind::kLiteral, static_cast<uint32_t>(out_.texts.size() - 1)});
  }

  ExprId add_set(CodePointSet set) {
    if (set.empty()) fail("a character class that matches nothing");
    out_.sets.push_back(std::move(set));
    return add({Expr::Kind::kSet, static_cast<uint32_t>(out_.sets.size() - 1)});
  }

  ExprId char_class() {
    ++at_;
    const bool negated = take("^");
    CodePointSet set;
    while (ok() && peek() != ']') {
      if (at_ >= text_.size()) {
        fail("']' is expected");
        break;
      }
      const char32_t first = character();
      char32_t last = first;
      if (peek() == '-' && peek(1) != ']') {
        ++at_;
        if (at_ >= text_.size()) fail("']' is expected");
        if (ok()) last = character();
      }
      if (last < first) fail("a character range whose ends are out of order");
      if (ok()) set.add(first, last);
    }
    ++at_;
    return ok() ? add_set(negated ? set.complement() : std::move(set)) : 0;
  }

  // One character of a literal or a class, escaped or not.
  char32_t character() {
    if (peek() != '\\') {
      size_t bytes = 1;
      const char32_t c = unicode::decode(text_, at_, &bytes);
      at_ += bytes;
      return c;
    }
    const char c = peek(1);
    at_ += 2;
    switch (c) {
      case 'x': return hex(2);
      case 'u': return hex(4);
      case 'U': return hex(8);
      case 't': return '\t';
      case 'r': return '\r';
      case 'n': return '\n';
      case '\\': case '"': case '[': case ']': case '-': case '^': case '/': case '\'': return static_cast<char32_t>(c);
      default: fail(std::string("an unknown escape '\\") + c + "'"); return 0;
    }
  }

  char32_t hex(int digits) {
    uint64_t value = 0;
    for (int i = 0; i < digits; ++i, ++at_) {
      const char c = peek();
      if (!absl::ascii_isxdigit(static_cast<unsigned char>(c))) {
        fail("an escape with too few hexadecimal digits");
        return 0;
      }
      value = value * 16 + static_cast<uint64_t>(is_digit(c) ? c - '0' : absl::ascii_tolower(static_cast<unsigned char>(c)) - 'a' + 10);
    }
    if (value > kCodePointMax || (value >= 0xD800 && value <= 0xDFFF)) fail("an escape that is no character");
    return static_cast<char32_t>(value);
  }

  // <[id]> or <text>
  ExprId token() {
    const size_t begin = at_;
    const size_t end = text_.find('>', at_);
    const std::string_view all = text_.substr(at_, end == std::string_view::npos ? 0 : end + 1 - at_);
    const bool one_line = !all.empty() && all.find('\n') == std::string_view::npos;
    if (!one_line) {
      fail("'>' is expected after a token");
      return 0;
    }
    at_ += all.size();
    if (all[1] != '[') {
      out_.texts.push_back(std::string(all));
      return add({Expr::Kind::kTokenText, static_cast<uint32_t>(out_.texts.size() - 1)});
    }
    uint64_t id = 0;
    for (at_ = begin + 2; is_digit(peek()); ++at_) id = std::min<uint64_t>(uint64_t{1} << 40, id * 10 + static_cast<uint64_t>(peek() - '0'));
    if (at_ == begin + 2 || id > INT32_MAX || !take("]>")) fail("a token is written <[id]> or <text>");
    return add({Expr::Kind::kTokenId, static_cast<uint32_t>(id)});
  }

  const std::string_view text_;
  const GrammarLimits limits_;
  size_t at_ = 0;
  Status status_ = OkStatus();
  ParsedGrammar out_;
  StringMap<uint32_t> rule_ids_;
};

}  // namespace

StatusOr<ParsedGrammar> parse_gbnf(std::string_view text, const GrammarLimits& limits) { return GbnfParser(text, limits).run(); }

}  // namespace shoal::grammar
