// JSON byte by byte: is what came so far the beginning of a value, and where in it are we. Nothing is kept but the
// open brackets.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace shoal {

class JsonScanner {
 public:
  enum class Status { kInside, kDone, kBad };

  // White space before the value is accepted. A number at the top level never becomes kDone: nothing ends it. Control
  // characters inside strings, which JSON forbids and models write, are accepted; see append_json_byte().
  // REQUIRES: the last status was kInside.
  Status push(char c);

  size_t depth() const { return open_.size(); }
  bool in_string() const { return state_ >= State::kString && state_ <= State::kHex; }
  bool in_key() const { return in_string() && is_key_; }
  // After the colon of a member of the outermost object, until its comma or the end.
  bool in_member_value() const { return in_member_value_; }

 private:
  enum class State : uint8_t {
    kValue, kValueOrEnd, kKeyOrEnd, kKey, kColon, kAfter,
    kString, kEscape, kHex,
    kMinus, kZero, kDigits, kPoint, kFraction, kExponent, kExponentSign, kExponentDigits, kWord,
  };
  bool step(char c);
  bool begin_value(char c);
  bool string_byte(char c);
  bool number_byte(char c);
  bool after_value(char c);
  bool close(char bracket);
  void end_value();

  State state_ = State::kValue;
  bool is_key_ = false;
  bool in_member_value_ = false;
  bool done_ = false;
  uint8_t hex_left_ = 0;
  const char* word_ = nullptr;  // what is left of true, false, null
  std::vector<char> open_;
};

// Appends `c` of a JSON text; a control character inside a string becomes its escape, so that the text is valid.
void append_json_byte(char c, bool in_string, std::string& out);

}  // namespace shoal
