#include "text/tokenizer/byte_level.h"

#include "text/tokenizer/unicode.h"

namespace shoal::byte_level {

const char* const kGpt2Regex =
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";

namespace {

constexpr char32_t kShiftedFirst = 0x100;
constexpr char32_t kShiftedEnd = 0x100 + 68;

bool stands_for_itself(unsigned b) { return (b >= 0x21 && b <= 0x7E) || (b >= 0xA1 && b <= 0xAC) || b >= 0xAE; }

std::array<char32_t, 256> make_chars() {
  std::array<char32_t, 256> table{};
  char32_t shifted = kShiftedFirst;
  for (unsigned b = 0; b < 256; ++b) table[b] = stands_for_itself(b) ? b : shifted++;
  return table;
}

// Code points below kShiftedEnd -> byte, or -1.
std::array<int16_t, kShiftedEnd> make_bytes() {
  std::array<int16_t, kShiftedEnd> table;
  table.fill(-1);
  for (unsigned b = 0; b < 256; ++b) table[chars()[b]] = static_cast<int16_t>(b);
  return table;
}

}  // namespace

const std::array<char32_t, 256>& chars() {
  static const std::array<char32_t, 256> table = make_chars();
  return table;
}

std::string from_bytes(std::string_view bytes) {
  std::string out;
  out.reserve(bytes.size() * 2);
  for (const char b : bytes) unicode::append(out, chars()[static_cast<uint8_t>(b)]);
  return out;
}

std::optional<std::string> to_bytes(std::string_view spelling) {
  static const std::array<int16_t, kShiftedEnd> table = make_bytes();
  std::string out;
  out.reserve(spelling.size());
  for (size_t at = 0, bytes = 0; at < spelling.size(); at += bytes) {
    const char32_t c = unicode::decode(spelling, at, &bytes);
    if (c >= kShiftedEnd || table[c] < 0) return std::nullopt;
    out.push_back(static_cast<char>(table[c]));
  }
  return out;
}

}  // namespace shoal::byte_level
