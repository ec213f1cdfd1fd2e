#include "text/tokenizer/unicode.h"

#include <utf8proc.h>

#include <algorithm>
#include <vector>

namespace shoal::unicode {
namespace {

utf8proc_category_t category(char32_t c) { return utf8proc_category(static_cast<utf8proc_int32_t>(c)); }

bool in(char32_t c, char32_t first, char32_t last) { return c >= first && c <= last; }

// Letters by use that have general category So: Alphabetic holds for them.
bool is_circled_letter(char32_t c) {
  return in(c, 0x24B6, 0x24E9) || in(c, 0x1F130, 0x1F149) || in(c, 0x1F150, 0x1F169) || in(c, 0x1F170, 0x1F189);
}

// The unconditional multi-character upper-case mappings of SpecialCasing.txt, without the Greek iota-subscript
// letters, which are computed.
struct SpecialUpper {
  char32_t from;
  std::u32string_view upper;
  std::u32string_view title;
};
constexpr SpecialUpper kSpecialUpper[] = {
    {0x00DF, U"SS", U"Ss"},
    {0x0149, U"\u02BCN", U"\u02BCN"},
    {0x01F0, U"J\u030C", U"J\u030C"},
    {0x0390, U"\u0399\u0308\u0301", U"\u0399\u0308\u0301"},
    {0x03B0, U"\u03A5\u0308\u0301", U"\u03A5\u0308\u0301"},
    {0x0587, U"\u0535\u0552", U"\u0535\u0582"},
    {0x1E96, U"H\u0331", U"H\u0331"},
    {0x1E97, U"T\u0308", U"T\u0308"},
    {0x1E98, U"W\u030A", U"W\u030A"},
    {0x1E99, U"Y\u030A", U"Y\u030A"},
    {0x1E9A, U"A\u02BE", U"A\u02BE"},
    {0x1F50, U"\u03A5\u0313", U"\u03A5\u0313"},
    {0x1FB6, U"\u0391\u0342", U"\u0391\u0342"},
    {0x1FC6, U"\u0397\u0342", U"\u0397\u0342"},
    {0x1FD6, U"\u0399\u0342", U"\u0399\u0342"},
    {0x1FE6, U"\u03A5\u0342", U"\u03A5\u0342"},
    {0x1FF6, U"\u03A9\u0342", U"\u03A9\u0342"},
    {0x1FB3, U"\u0391\u0399", U"\u1FBC"},
    {0x1FC3, U"\u0397\u0399", U"\u1FCC"},
    {0x1FF3, U"\u03A9\u0399", U"\u1FFC"},
    {0xFB00, U"FF", U"Ff"},
    {0xFB01, U"FI", U"Fi"},
    {0xFB02, U"FL", U"Fl"},
    {0xFB03, U"FFI", U"Ffi"},
    {0xFB04, U"FFL", U"Ffl"},
    {0xFB05, U"ST", U"St"},
    {0xFB06, U"ST", U"St"},
    {0xFB13, U"\u0544\u0546", U"\u0544\u0576"},
    {0xFB14, U"\u0544\u0535", U"\u0544\u0565"},
    {0xFB15, U"\u0544\u053B", U"\u0544\u056B"},
    {0xFB16, U"\u054E\u0546", U"\u054E\u0576"},
    {0xFB17, U"\u0544\u053D", U"\u0544\u056D"},
};

const SpecialUpper* special_upper(char32_t c) {
  for (const SpecialUpper& entry : kSpecialUpper) {
    if (entry.from == c) return &entry;
  }
  return nullptr;
}

void append_all(std::string& out, std::u32string_view text) {
  for (const char32_t c : text) append(out, c);
}

// Second byte bounds for a lead byte, and how many bytes the sequence has; 0 for a byte that cannot lead.
struct Lead {
  uint8_t bytes, second_min, second_max;
};
Lead lead_of(uint8_t b) {
  if (b < 0x80) return {1, 0, 0};
  if (b < 0xC2) return {0, 0, 0};
  if (b < 0xE0) return {2, 0x80, 0xBF};
  if (b == 0xE0) return {3, 0xA0, 0xBF};
  if (b == 0xED) return {3, 0x80, 0x9F};
  if (b < 0xF0) return {3, 0x80, 0xBF};
  if (b == 0xF0) return {4, 0x90, 0xBF};
  if (b < 0xF4) return {4, 0x80, 0xBF};
  if (b == 0xF4) return {4, 0x80, 0x8F};
  return {0, 0, 0};
}

}  // namespace

Sequence sequence_at(std::string_view s, size_t at) {
  const Lead lead = lead_of(static_cast<uint8_t>(s[at]));
  if (lead.bytes <= 1) return {1, lead.bytes == 1, false};
  uint8_t have = 1;
  while (have < lead.bytes) {
    if (at + have == s.size()) return {have, false, true};
    const auto b = static_cast<uint8_t>(s[at + have]);
    const bool fits = have == 1 ? b >= lead.second_min && b <= lead.second_max : (b & 0xC0) == 0x80;
    if (!fits) return {have, false, false};
    ++have;
  }
  return {have, true, false};
}

char32_t decode(std::string_view s, size_t at, size_t* bytes) {
  const auto b0 = static_cast<uint8_t>(s[at]);
  if (b0 < 0x80) {
    *bytes = 1;
    return b0;
  }
  const Sequence sequence = sequence_at(s, at);
  *bytes = sequence.bytes;
  if (!sequence.complete) return kReplacement;
  const auto low = [&](size_t i) { return static_cast<char32_t>(static_cast<uint8_t>(s[at + i]) & 0x3F); };
  if (sequence.bytes == 2) return (b0 & 0x1Fu) << 6 | low(1);
  if (sequence.bytes == 3) return (b0 & 0x0Fu) << 12 | low(1) << 6 | low(2);
  return (b0 & 0x07u) << 18 | low(1) << 12 | low(2) << 6 | low(3);
}

char32_t decode_last(std::string_view s, size_t end, size_t* bytes) {
  size_t at = end - 1;
  while (at > 0 && end - at < 4 && (static_cast<uint8_t>(s[at]) & 0xC0) == 0x80) --at;
  const char32_t c = decode(s, at, bytes);
  *bytes = end - at;
  return c;
}

void append(std::string& out, char32_t c) {
  const auto put = [&](char32_t b) { out.push_back(static_cast<char>(b)); };
  if (c > 0x10FFFF || in(c, 0xD800, 0xDFFF)) c = kReplacement;
  if (c < 0x80) {
    put(c);
  } else if (c < 0x800) {
    put(0xC0 | c >> 6), put(0x80 | (c & 0x3F));
  } else if (c < 0x10000) {
    put(0xE0 | c >> 12), put(0x80 | (c >> 6 & 0x3F)), put(0x80 | (c & 0x3F));
  } else {
    put(0xF0 | c >> 18), put(0x80 | (c >> 12 & 0x3F)), put(0x80 | (c >> 6 & 0x3F)), put(0x80 | (c & 0x3F));
  }
}

std::string encode(char32_t c) {
  std::string out;
  append(out, c);
  return out;
}

size_t length(std::string_view s) {
  size_t count = 0;
  for (const char b : s) count += (static_cast<uint8_t>(b) & 0xC0) != 0x80;
  return count;
}

bool is_ascii(std::string_view s) {
  return std::none_of(s.begin(), s.end(), [](char b) { return static_cast<uint8_t>(b) >= 0x80; });
}

bool is_valid(std::string_view s) {
  for (size_t at = 0; at < s.size();) {
    if (static_cast<uint8_t>(s[at]) < 0x80) {
      ++at;
      continue;
    }
    const Sequence sequence = sequence_at(s, at);
    if (!sequence.complete) return false;
    at += sequence.bytes;
  }
  return true;
}

std::string sanitize(std::string_view s) {
  std::string out;
  out.reserve(s.size());
  for (size_t at = 0; at < s.size();) {
    const Sequence sequence = sequence_at(s, at);
    out += sequence.complete ? s.substr(at, sequence.bytes) : kReplacementUtf8;
    at += sequence.bytes;
  }
  return out;
}

size_t unfinished_suffix(std::string_view s) {
  const size_t reach = std::min<size_t>(3, s.size());
  for (size_t back = 1; back <= reach; ++back) {
    const size_t at = s.size() - back;
    if ((static_cast<uint8_t>(s[at]) & 0xC0) == 0x80) continue;
    const Sequence sequence = sequence_at(s, at);
    return sequence.truncated && sequence.bytes == back ? back : 0;
  }
  return 0;
}

bool is_whitespace(char32_t c) {
  if (c < 0x80) return in(c, 9, 13) || c == ' ';
  return c == 0x85 || c == 0xA0 || c == 0x1680 || in(c, 0x2000, 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F ||
         c == 0x205F || c == 0x3000;
}

bool is_letter(char32_t c) {
  const auto k = category(c);
  return k >= UTF8PROC_CATEGORY_LU && k <= UTF8PROC_CATEGORY_LO;
}
bool is_mark(char32_t c) {
  const auto k = category(c);
  return k >= UTF8PROC_CATEGORY_MN && k <= UTF8PROC_CATEGORY_ME;
}
bool is_nonspacing_mark(char32_t c) { return category(c) == UTF8PROC_CATEGORY_MN; }
bool is_numeric(char32_t c) {
  const auto k = category(c);
  return k >= UTF8PROC_CATEGORY_ND && k <= UTF8PROC_CATEGORY_NO;
}
bool is_decimal(char32_t c) { return category(c) == UTF8PROC_CATEGORY_ND; }
bool is_digit(char32_t c) {
  return is_decimal(c) || c == 0xB2 || c == 0xB3 || c == 0xB9 || c == 0x2070 || in(c, 0x2074, 0x2079) ||
         in(c, 0x2080, 0x2089) || in(c, 0x2460, 0x2468) || in(c, 0x2474, 0x247C) || in(c, 0x2488, 0x2490) ||
         c == 0x24EA || in(c, 0x24F5, 0x24FD) || c == 0x24FF || in(c, 0x2776, 0x277E) || in(c, 0x2780, 0x2788) ||
         in(c, 0x278A, 0x2792);
}
bool is_alphanumeric(char32_t c) { return is_letter(c) || is_numeric(c) || is_circled_letter(c); }
bool is_word(char32_t c) {
  if (c < 0x80) return in(c, 'a', 'z') || in(c, 'A', 'Z') || in(c, '0', '9') || c == '_';
  const auto k = category(c);
  return is_letter(c) || is_mark(c) || k == UTF8PROC_CATEGORY_ND || k == UTF8PROC_CATEGORY_NL ||
         k == UTF8PROC_CATEGORY_PC || c == 0x200C || c == 0x200D || is_circled_letter(c);
}
bool is_punctuation(char32_t c) {
  if (c < 0x80) return in(c, '!', '/') || in(c, ':', '@') || in(c, '[', '`') || in(c, '{', '~');
  const auto k = category(c);
  return k >= UTF8PROC_CATEGORY_PC && k <= UTF8PROC_CATEGORY_PO;
}
bool is_control(char32_t c) {
  if (c == '\t' || c == '\n' || c == '\r') return false;
  const auto k = category(c);
  return k == UTF8PROC_CATEGORY_CC || k == UTF8PROC_CATEGORY_CF || k == UTF8PROC_CATEGORY_CN ||
         k == UTF8PROC_CATEGORY_CO;
}
bool is_printable(char32_t c) {
  if (c == ' ') return true;
  const auto k = category(c);
  return k != UTF8PROC_CATEGORY_CN && k < UTF8PROC_CATEGORY_ZS;  // separators and "other" come last
}
bool is_upper(char32_t c) { return category(c) == UTF8PROC_CATEGORY_LU || in(c, 0x2160, 0x216F) || in(c, 0x24B6, 0x24CF); }
bool is_lower(char32_t c) {
  return category(c) == UTF8PROC_CATEGORY_LL || c == 0xAA || c == 0xBA || in(c, 0x2170, 0x217F) || in(c, 0x24D0, 0x24E9) ||
         in(c, 0x2B0, 0x2B8) || in(c, 0x1D2C, 0x1D6A);
}
bool is_title(char32_t c) { return category(c) == UTF8PROC_CATEGORY_LT; }

char32_t simple_lower(char32_t c) {
  if (c < 0x80) return in(c, 'A', 'Z') ? c + 32 : c;
  return static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c)));
}
char32_t simple_upper(char32_t c) {
  if (c < 0x80) return in(c, 'a', 'z') ? c - 32 : c;
  return static_cast<char32_t>(utf8proc_toupper(static_cast<utf8proc_int32_t>(c)));
}

void append_lower(std::string& out, char32_t c) {
  if (c == 0x130) return append_all(out, U"i\u0307");
  append(out, simple_lower(c));
}

void append_upper(std::string& out, char32_t c) {
  if (c >= 0xDF) {
    if (const SpecialUpper* special = special_upper(c)) return append_all(out, special->upper);
  }
  append(out, simple_upper(c));
}

void append_title(std::string& out, char32_t c) {
  if (c >= 0xDF) {
    if (const SpecialUpper* special = special_upper(c)) return append_all(out, special->title);
    return append(out, static_cast<char32_t>(utf8proc_totitle(static_cast<utf8proc_int32_t>(c))));
  }
  append(out, simple_upper(c));
}

void append_folded(std::string& out, char32_t c) {
  utf8proc_int32_t folded[16];
  int boundary = 0;
  const auto count = utf8proc_decompose_char(static_cast<utf8proc_int32_t>(c), folded, std::size(folded), UTF8PROC_CASEFOLD, &boundary);
  if (count < 1 || count > static_cast<utf8proc_ssize_t>(std::size(folded))) return append(out, c);
  for (utf8proc_ssize_t i = 0; i < count; ++i) append(out, static_cast<char32_t>(folded[i]));
}

bool grapheme_break(char32_t before, char32_t after, int32_t* state) {
  return utf8proc_grapheme_break_stateful(static_cast<utf8proc_int32_t>(before), static_cast<utf8proc_int32_t>(after), state);
}

std::string normalize(std::string_view s, Form form) {
  if (is_ascii(s)) return std::string(s);
  const bool compat = form == Form::kNfkc || form == Form::kNfkd;
  const bool compose = form == Form::kNfc || form == Form::kNfkc;
  const auto options = static_cast<utf8proc_option_t>(UTF8PROC_STABLE | (compat ? UTF8PROC_COMPAT : 0) |
                                                      (compose ? UTF8PROC_COMPOSE : UTF8PROC_DECOMPOSE));
  std::vector<utf8proc_int32_t> points;
  points.reserve(s.size());
  const auto combining = [](utf8proc_int32_t c) { return c < 0x300 ? 0 : utf8proc_get_property(c)->combining_class; };
  const auto by_class = [&](utf8proc_int32_t a, utf8proc_int32_t b) { return combining(a) < combining(b); };
  size_t run = 0;  // points[run..] are the combining marks after the last starter
  for (size_t at = 0, bytes = 0; at < s.size(); at += bytes) {
    utf8proc_int32_t expanded[32];
    int last_boundary = 0;
    const auto c = static_cast<utf8proc_int32_t>(decode(s, at, &bytes));
    const auto decomposing = static_cast<utf8proc_option_t>((options & ~UTF8PROC_COMPOSE) | UTF8PROC_DECOMPOSE);
    utf8proc_ssize_t count = 1;
    expanded[0] = c;
    if (c >= 0x80) count = utf8proc_decompose_char(c, expanded, std::size(expanded), decomposing, &last_boundary);
    if (count < 1 || count > static_cast<utf8proc_ssize_t>(std::size(expanded))) count = 1, expanded[0] = c;
    for (utf8proc_ssize_t i = 0; i < count; ++i) {
      if (combining(expanded[i]) == 0) {
        std::stable_sort(points.begin() + static_cast<ptrdiff_t>(run), points.end(), by_class);
        run = points.size() + 1;
      }
      points.push_back(expanded[i]);
      if (run > points.size()) run = points.size();
    }
  }
  std::stable_sort(points.begin() + static_cast<ptrdiff_t>(std::min(run, points.size())), points.end(), by_class);
  auto count = static_cast<utf8proc_ssize_t>(points.size());
  if (compose) count = utf8proc_normalize_utf32(points.data(), count, options);
  std::string out;
  out.reserve(s.size() + 8);
  for (utf8proc_ssize_t i = 0; i < count; ++i) append(out, static_cast<char32_t>(points[static_cast<size_t>(i)]));
  return out;
}

}  // namespace shoal::unicode
