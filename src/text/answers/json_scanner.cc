#include "text/answers/json_scanner.h"

#include "absl/strings/str_format.h"

namespace shoal {
namespace {

bool is_json_space(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }

constexpr size_t kDepthMax = 64;  // as of every JSON text that a client sends

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_hex(char c) { return is_digit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F'); }

}  // namespace

JsonScanner::Status JsonScanner::push(char c) {
  if (!step(c)) return Status::kBad;
  return done_ ? Status::kDone : Status::kInside;
}

bool JsonScanner::step(char c) {
  switch (state_) {
    case State::kValue: return is_json_space(c) || begin_value(c);
    case State::kValueOrEnd: return is_json_space(c) || (c == ']' ? close(']') : begin_value(c));
    case State::kKeyOrEnd:
      if (c == '}') return close('}');
      [[fallthrough]];
    case State::kKey:
      if (is_json_space(c)) return true;
      is_key_ = true;
      state_ = State::kString;
      return c == '"';
    case State::kColon:
      if (is_json_space(c)) return true;
      state_ = State::kValue;
      if (depth() == 1) in_member_value_ = true;
      return c == ':';
    case State::kAfter: return after_value(c);
    case State::kString:
    case State::kEscape:
    case State::kHex: return string_byte(c);
    case State::kWord:
      if (c != *word_) return false;
      if (*++word_ == '\0') end_value();
      return true;
    default: return number_byte(c);
  }
}

bool JsonScanner::begin_value(char c) {
  switch (c) {
    case '{':
    case '[':
      if (open_.size() >= kDepthMax) return false;
      open_.push_back(c);
      state_ = c == '{' ? State::kKeyOrEnd : State::kValueOrEnd;
      return true;
    case '"': is_key_ = false; state_ = State::kString; return true;
    case 't': word_ = "rue"; state_ = State::kWord; return true;
    case 'f': word_ = "alse"; state_ = State::kWord; return true;
    case 'n': word_ = "ull"; state_ = State::kWord; return true;
    case '-': state_ = State::kMinus; return true;
    case '0': state_ = State::kZero; return true;
    default: state_ = State::kDigits; return is_digit(c);
  }
}

bool JsonScanner::string_byte(char c) {
  if (state_ == State::kHex) {
    if (--hex_left_ == 0) state_ = State::kString;
    return is_hex(c);
  }
  if (state_ == State::kEscape) {
    state_ = c == 'u' ? State::kHex : State::kString;
    hex_left_ = 4;
    return c == 'u' || std::string_view("\"\\/bfnrt").find(c) != std::string_view::npos;
  }
  if (c == '\\') state_ = State::kEscape;
  if (c != '"') return true;
  if (is_key_) {
    state_ = State::kColon;
  } else {
    end_value();
  }
  return true;
}

bool JsonScanner::number_byte(char c) {
  const bool exponent = c == 'e' || c == 'E';
  switch (state_) {
    case State::kMinus: state_ = c == '0' ? State::kZero : State::kDigits; return is_digit(c);
    case State::kZero:
    case State::kDigits:
      if (state_ == State::kDigits && is_digit(c)) return true;
      if (c == '.') return state_ = State::kPoint, true;
      break;
    case State::kPoint: state_ = State::kFraction; return is_digit(c);
    case State::kFraction:
      if (is_digit(c)) return true;
      break;
    case State::kExponent:
      if (c == '+' || c == '-') return state_ = State::kExponentSign, true;
      [[fallthrough]];
    case State::kExponentSign: state_ = State::kExponentDigits; return is_digit(c);
    default:
      if (is_digit(c)) return true;
      end_value();
      return after_value(c);
  }
  if (exponent) return state_ = State::kExponent, true;
  end_value();
  return after_value(c);
}

bool JsonScanner::after_value(char c) {
  if (is_json_space(c)) return true;
  if (open_.empty()) return false;
  if (c == '}' || c == ']') return close(c);
  if (c != ',') return false;
  if (depth() == 1) in_member_value_ = false;
  state_ = open_.back() == '{' ? State::kKey : State::kValue;
  return true;
}

bool JsonScanner::close(char bracket) {
  if (open_.empty() || open_.back() != (bracket == '}' ? '{' : '[')) return false;
  if (depth() == 1) in_member_value_ = false;
  open_.pop_back();
  end_value();
  return true;
}

void JsonScanner::end_value() {
  state_ = State::kAfter;
  done_ = open_.empty();
}

void append_json_byte(char c, bool in_string, std::string& out) {
  const auto byte = static_cast<unsigned char>(c);
  if (!in_string || byte >= 0x20) {
    out += c;
  } else if (c == '\n') {
    out += "\\n";
  } else {
    out += absl::StrFormat("\\u%04x", byte);
  }
}

}  // namespace shoal
