#include "text/jinja/lexer.h"

#include <algorithm>

#include "text/jinja/value.h"
#include "text/tokenizer/unicode.h"

namespace shoal::jinja {
namespace {

bool is_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }
bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool begins_name(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || static_cast<uint8_t>(c) >= 0x80; }

class Lexer {
 public:
  explicit Lexer(std::string_view source) : source_(normalize_newlines(source)), s_(source_) {}

  std::vector<Token> run() {
    while (at_ < s_.size()) {
      const size_t tag = find_tag(at_);
      if (tag == std::string_view::npos) {
        data(s_.substr(at_));
        at_ = s_.size();
        break;
      }
      text_before(tag);
      switch (s_[tag + 1]) {
        case '#': comment(tag); break;
        case '{': tag_body(tag, false); break;
        default: raw_begin(tag) ? raw(tag) : tag_body(tag, true);
      }
    }
    push(TokenKind::kEnd, "");
    return std::move(tokens_);
  }

 private:
  // The environment reads \r\n and \r as \n and drops one newline at the end of the source.
  static std::string normalize_newlines(std::string_view source) {
    std::string out;
    out.reserve(source.size());
    for (size_t i = 0; i < source.size(); ++i) {
      if (source[i] == '\r') {
        out += '\n';
        if (source.substr(i + 1, 1) == "\n") ++i;
      } else {
        out += source[i];
      }
    }
    if (out.ends_with('\n')) out.pop_back();
    return out;
  }

  [[noreturn]] void bad(std::string_view why) const { fail("line ", line_, ": ", std::string(why)); }
  void push(TokenKind kind, std::string text) { tokens_.push_back({kind, line_, std::move(text)}); }
  void data(std::string_view text) {
    if (!text.empty()) push(TokenKind::kData, std::string(text));
  }
  void advance(size_t to) {
    line_ += static_cast<uint32_t>(std::count(s_.begin() + static_cast<ptrdiff_t>(at_), s_.begin() + static_cast<ptrdiff_t>(to), '\n'));
    at_ = to;
  }

  size_t find_tag(size_t from) const {
    for (size_t i = s_.find('{', from); i != std::string_view::npos && i + 1 < s_.size(); i = s_.find('{', i + 1)) {
      if (s_[i + 1] == '{' || s_[i + 1] == '%' || s_[i + 1] == '#') return i;
    }
    return std::string_view::npos;
  }

  // The text from at_ up to a tag, less what "{%-" or lstrip_blocks take from its end.
  void text_before(size_t tag) {
    const std::string_view text = strip_end(s_.substr(at_, tag - at_), s_.substr(tag + 2, 1), s_[tag + 1] != '{');
    data(text);
    advance(tag);
  }

  std::string_view strip_end(std::string_view text, std::string_view sign, bool is_block) const {
    if (sign == "-") {
      while (!text.empty() && strippable(text)) text.remove_suffix(last_bytes(text));
    } else if (sign != "+" && is_block) {
      const size_t newline = text.rfind('\n');
      const size_t line_begin = newline == std::string_view::npos ? 0 : newline + 1;
      const std::string_view indent = text.substr(line_begin);
      if ((line_begin > 0 || line_starting_) && std::all_of(indent.begin(), indent.end(), is_space)) text = text.substr(0, line_begin);
    }
    return text;
  }
  static size_t last_bytes(std::string_view text) {
    size_t bytes = 0;
    unicode::decode_last(text, text.size(), &bytes);
    return bytes;
  }
  static bool strippable(std::string_view text) {
    size_t bytes = 0;
    const char32_t c = unicode::decode_last(text, text.size(), &bytes);
    return unicode::is_whitespace(c) || (c >= 0x1C && c <= 0x1F);
  }

  // After a closing tag: "-" takes all white space that follows, a block or comment takes one newline unless "+".
  void after_tag(size_t end, char sign, bool is_block) {
    if (sign == '-') {
      size_t bytes = 0;
      while (end < s_.size()) {
        const char32_t c = unicode::decode(s_, end, &bytes);
        if (!unicode::is_whitespace(c) && !(c >= 0x1C && c <= 0x1F)) break;
        end += bytes;
      }
    } else if (is_block && sign != '+' && end < s_.size() && s_[end] == '\n') {
      ++end;
    }
    advance(end);
    line_starting_ = end > 0 && s_[end - 1] == '\n';
  }

  void comment(size_t tag) {
    const size_t close = s_.find("#}", tag + 2);
    if (close == std::string_view::npos) bad("missing end of comment tag");
    const char before = close > tag + 2 ? s_[close - 1] : ' ';
    after_tag(close + 2, before == '-' || before == '+' ? before : ' ', true);
  }

  // "{% raw %}" with its variations: where it ends, or npos.
  size_t named_tag_end(size_t tag, std::string_view name, char* sign) const {
    size_t i = tag + 2;
    if (i < s_.size() && (s_[i] == '-' || s_[i] == '+')) ++i;
    while (i < s_.size() && is_space(s_[i])) ++i;
    if (s_.substr(i, name.size()) != name) return std::string_view::npos;
    i += name.size();
    while (i < s_.size() && is_space(s_[i])) ++i;
    *sign = ' ';
    if (i < s_.size() && (s_[i] == '-' || s_[i] == '+')) *sign = s_[i++];
    return s_.substr(i, 2) == "%}" ? i + 2 : std::string_view::npos;
  }
  bool raw_begin(size_t tag) const {
    char sign;
    return named_tag_end(tag, "raw", &sign) != std::string_view::npos;
  }
  void raw(size_t tag) {
    char sign;
    const size_t body = named_tag_end(tag, "raw", &sign);
    after_tag(body, sign == '-' ? '-' : '+', false);
    for (size_t i = s_.find("{%", at_); i != std::string_view::npos; i = s_.find("{%", i + 2)) {
      const size_t end = named_tag_end(i, "endraw", &sign);
      if (end == std::string_view::npos) continue;
      data(strip_end(s_.substr(at_, i - at_), s_.substr(i + 2, 1), true));
      advance(i);
      after_tag(end, sign, true);
      return;
    }
    bad("missing end of raw directive");
  }

  void tag_body(size_t tag, bool is_block) {
    push(is_block ? TokenKind::kBlockBegin : TokenKind::kVariableBegin, "");
    advance(tag + 2);
    if (at_ < s_.size() && (s_[at_] == '-' || s_[at_] == '+')) ++at_;
    std::string open;  // brackets that wait to be closed: inside of them "}}" is two of them
    const std::string_view close = is_block ? "%}" : "}}";
    while (true) {
      while (at_ < s_.size() && is_space(s_[at_])) advance(at_ + 1);
      if (at_ >= s_.size()) bad(is_block ? "unexpected end of template, expected '%}'" : "unexpected end of template, expected '}}'");
      if (open.empty()) {
        const bool signed_end = (s_[at_] == '-' || (s_[at_] == '+' && is_block)) && s_.substr(at_ + 1, 2) == close;
        if (signed_end || s_.substr(at_, 2) == close) {
          const char sign = signed_end ? s_[at_] : ' ';
          push(is_block ? TokenKind::kBlockEnd : TokenKind::kVariableEnd, "");
          after_tag(at_ + (signed_end ? 3 : 2), sign, is_block);
          return;
        }
      }
      token(open);
    }
  }

  void token(std::string& open) {
    const char c = s_[at_];
    if (begins_name(c)) return name();
    if (is_digit(c)) return number();
    if (c == '\'' || c == '"') return string();
    static constexpr std::string_view kTwo[] = {"**", "//", "==", "!=", ">=", "<="};
    for (const std::string_view op : kTwo) {
      if (s_.substr(at_, 2) == op) return operator_token(op);
    }
    if (std::string_view("+-/*%~[](){}<>=.:|,;").find(c) == std::string_view::npos) {
      size_t bytes = 0;
      unicode::decode(s_, at_, &bytes);
      bad("unexpected char '" + std::string(s_.substr(at_, bytes)) + "'");
    }
    if (c == '(' || c == '[' || c == '{') open += c == '(' ? ')' : c == '[' ? ']' : '}';
    if (c == ')' || c == ']' || c == '}') {
      if (open.empty()) bad(std::string("unexpected '") + c + "'");
      if (open.back() != c) bad(std::string("unexpected '") + c + "', expected '" + open.back() + "'");
      open.pop_back();
    }
    operator_token(s_.substr(at_, 1));
  }
  void operator_token(std::string_view op) {
    push(TokenKind::kOperator, std::string(op));
    at_ += op.size();
  }

  void name() {
    size_t end = at_;
    while (end < s_.size() && (begins_name(s_[end]) || is_digit(s_[end]))) {
      size_t bytes = 1;
      if (static_cast<uint8_t>(s_[end]) >= 0x80 && !unicode::is_word(unicode::decode(s_, end, &bytes))) break;
      end += bytes;
    }
    if (end == at_) bad("unexpected character");
    push(TokenKind::kName, std::string(s_.substr(at_, end - at_)));
    at_ = end;
  }

  // Digits with single underscores between them.
  size_t digits_end(size_t at, bool (*accept)(char)) const {
    while (at < s_.size() && (accept(s_[at]) || (s_[at] == '_' && at + 1 < s_.size() && accept(s_[at + 1])))) ++at;
    return at;
  }
  void number() {
    const char radix = at_ + 1 < s_.size() ? static_cast<char>(s_[at_ + 1] | 0x20) : ' ';
    if (s_[at_] == '0' && (radix == 'x' || radix == 'o' || radix == 'b')) {
      const size_t end = digits_end(at_ + 2, [](char c) { return is_digit(c) || ((c | 0x20) >= 'a' && (c | 0x20) <= 'f'); });
      return numeric(TokenKind::kInteger, end);
    }
    size_t end = digits_end(at_, is_digit);
    TokenKind kind = TokenKind::kInteger;
    if (at_ > 0 && s_[at_ - 1] == '.') return numeric(kind, end);  // the index of "row.0.1", not a fraction
    if (end + 1 < s_.size() && s_[end] == '.' && is_digit(s_[end + 1])) {
      end = digits_end(end + 1, is_digit);
      kind = TokenKind::kFloat;
    }
    size_t exponent = end;
    if (exponent < s_.size() && (s_[exponent] | 0x20) == 'e') {
      ++exponent;
      if (exponent < s_.size() && (s_[exponent] == '+' || s_[exponent] == '-')) ++exponent;
      if (exponent < s_.size() && is_digit(s_[exponent])) end = digits_end(exponent, is_digit), kind = TokenKind::kFloat;
    }
    numeric(kind, end);
  }
  void numeric(TokenKind kind, size_t end) {
    std::string text(s_.substr(at_, end - at_));
    std::erase(text, '_');
    push(kind, std::move(text));
    at_ = end;
  }

  void string() {
    const char quote = s_[at_];
    size_t end = at_ + 1;
    while (end < s_.size() && s_[end] != quote) end += s_[end] == '\\' ? 2 : 1;
    if (end >= s_.size()) bad("unexpected end of string");
    push(TokenKind::kString, unescape(s_.substr(at_ + 1, end - at_ - 1)));
    advance(end + 1);
  }

  // Python's escapes; an unknown one stays as it is written.
  std::string unescape(std::string_view s) const {
    std::string out;
    for (size_t i = 0; i < s.size(); ++i) {
      if (s[i] != '\\' || i + 1 == s.size()) {
        out += s[i];
        continue;
      }
      const char c = s[++i];
      static constexpr std::string_view kFrom = "abfnrtv\\'\"", kTo = "\a\b\f\n\r\t\v\\'\"";
      if (const size_t simple = kFrom.find(c); simple != std::string_view::npos) {
        out += kTo[simple];
      } else if (c == 'x' || c == 'u' || c == 'U') {
        const size_t digits = c == 'x' ? 2 : c == 'u' ? 4 : 8;
        unicode::append(out, hex(s.substr(i + 1, digits), digits, 16));
        i += digits;
      } else if (c >= '0' && c <= '7') {
        size_t n = 1;
        while (n < 3 && i + n < s.size() && s[i + n] >= '0' && s[i + n] <= '7') ++n;
        unicode::append(out, hex(s.substr(i, n), n, 8));
        i += n - 1;
      } else if (c != '\n') {
        out += {'\\', c};
      }
    }
    return out;
  }
  char32_t hex(std::string_view digits, size_t count, int base) const {
    char32_t value = 0;
    if (digits.size() != count) bad("truncated escape in string");
    for (const char c : digits) {
      const int lower = c | 0x20;
      const int digit = is_digit(c) ? c - '0' : lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : 99;
      if (digit >= base) bad("bad escape in string");
      value = value * static_cast<char32_t>(base) + static_cast<char32_t>(digit);
    }
    return value;
  }

  const std::string source_;
  const std::string_view s_;
  size_t at_ = 0;
  uint32_t line_ = 1;
  bool line_starting_ = true;  // the last thing read ended with a newline
  std::vector<Token> tokens_;
};

}  // namespace

std::vector<Token> tokenize(std::string_view source) { return Lexer(source).run(); }

}  // namespace shoal::jinja
