// UTF-8 and the character properties that tokenizers and templates depend on.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace shoal::unicode {

constexpr size_t kCharBytesMax = 4;
constexpr char32_t kReplacement = 0xFFFD;
constexpr std::string_view kReplacementUtf8 = "\xEF\xBF\xBD";

// The longest prefix of s[at..] that is, or may become, one well-formed sequence (Unicode table 3-7).
struct Sequence {
  uint8_t bytes;   // at least 1; an ill-formed sequence counts its maximal subpart
  bool complete;   // the sequence is a code point
  bool truncated;  // s ended before the sequence was decided
};
Sequence sequence_at(std::string_view s, size_t at);

// The code point at `at` and its length in bytes; U+FFFD for an ill-formed sequence. REQUIRES: at < s.size().
char32_t decode(std::string_view s, size_t at, size_t* bytes);
// The code point that ends at `end`. REQUIRES: s is well-formed and 0 < end <= s.size().
char32_t decode_last(std::string_view s, size_t end, size_t* bytes);

// The bytes of the code point that begins at s[at], by its lead byte. REQUIRES: s is well-formed.
inline size_t step(std::string_view s, size_t at) {
  const auto b = static_cast<unsigned char>(s[at]);
  return b < 0x80 ? 1 : b < 0xE0 ? 2 : b < 0xF0 ? 3 : 4;
}

void append(std::string& out, char32_t c);
std::string encode(char32_t c);
size_t length(std::string_view s);  // code points
bool is_ascii(std::string_view s);
bool is_valid(std::string_view s);
// Ill-formed sequences become U+FFFD, one for each maximal subpart (as WHATWG and Rust's from_utf8_lossy do).
std::string sanitize(std::string_view s);
// How many bytes at the end of s are the beginning of a sequence that more bytes could complete.
size_t unfinished_suffix(std::string_view s);

bool is_whitespace(char32_t c);    // White_Space
bool is_letter(char32_t c);        // general category L
bool is_mark(char32_t c);          // M
bool is_nonspacing_mark(char32_t c);  // Mn
bool is_numeric(char32_t c);       // N
bool is_decimal(char32_t c);       // Nd
bool is_digit(char32_t c);         // Nd and the digit-like superscripts and circled digits
bool is_alphanumeric(char32_t c);  // Alphabetic or N
bool is_word(char32_t c);          // what \w means in Unicode regular expressions
bool is_punctuation(char32_t c);   // ASCII punctuation and P
bool is_control(char32_t c);       // Cc, Cf, Cn, Co, except tab, LF, CR
bool is_printable(char32_t c);     // what Python's repr shows unescaped
bool is_upper(char32_t c);
bool is_lower(char32_t c);
bool is_title(char32_t c);

char32_t simple_lower(char32_t c);
char32_t simple_upper(char32_t c);
// Full mappings of one code point: the sharp s becomes "SS", dotted I becomes "i" and U+0307.
void append_lower(std::string& out, char32_t c);
void append_upper(std::string& out, char32_t c);
void append_title(std::string& out, char32_t c);
void append_folded(std::string& out, char32_t c);  // full case folding

enum class Form { kNfc, kNfd, kNfkc, kNfkd };
// Time is n log n in the length whatever the text. REQUIRES: s is well-formed.
std::string normalize(std::string_view s, Form form);

// Calls f(begin, end) for every extended grapheme cluster of s.
template <typename F>
void for_each_grapheme(std::string_view s, F&& f);

// Whether a grapheme cluster ends between two code points; `state` starts at 0 and is carried along the text.
bool grapheme_break(char32_t before, char32_t after, int32_t* state);

template <typename F>
void for_each_grapheme(std::string_view s, F&& f) {
  size_t begin = 0;
  int32_t state = 0;
  char32_t before = 0;
  for (size_t at = 0, bytes = 0; at < s.size(); at += bytes) {
    const char32_t c = decode(s, at, &bytes);
    if (at > 0 && grapheme_break(before, c, &state)) {
      f(begin, at);
      begin = at;
    }
    before = c;
  }
  if (begin < s.size()) f(begin, s.size());
}

}  // namespace shoal::unicode
