#include "text/tokenizer/charsmap.h"

#include <cstring>

#include "text/tokenizer/unicode.h"

namespace shoal {
namespace {

constexpr size_t kGraphemeBytesMax = 5;

// Fields of a unit of the double array (darts-clone).
bool has_leaf(uint32_t unit) { return (unit >> 8 & 1) == 1; }
uint32_t value_of(uint32_t unit) { return unit & 0x7FFFFFFFu; }
uint32_t label_of(uint32_t unit) { return unit & (1u << 31 | 0xFFu); }
uint32_t offset_of(uint32_t unit) { return (unit >> 10) << ((unit & (1u << 9)) >> 6); }

}  // namespace

StatusOr<Charsmap> Charsmap::parse(std::string_view blob) {
  uint32_t trie_bytes = 0;
  if (blob.size() < sizeof(trie_bytes)) return invalid_argument("character map of ", blob.size(), " bytes is too short");
  std::memcpy(&trie_bytes, blob.data(), sizeof(trie_bytes));
  blob.remove_prefix(sizeof(trie_bytes));
  if (trie_bytes > blob.size() || trie_bytes % 4 != 0 || trie_bytes == 0) {
    return invalid_argument("character map claims a trie of ", trie_bytes, " bytes, ", blob.size(), " are there");
  }
  Charsmap map;
  map.units_.resize(trie_bytes / 4);
  std::memcpy(map.units_.data(), blob.data(), trie_bytes);
  map.replacements_ = blob.substr(trie_bytes);
  if (!unicode::is_valid(map.replacements_)) return invalid_argument("character map's replacements are not UTF-8");
  return map;
}

std::optional<std::string_view> Charsmap::find(std::string_view chunk) const {
  size_t node = offset_of(units_[0]);
  for (const char c : chunk) {
    const auto label = static_cast<uint8_t>(c);
    node ^= label;
    if (label == 0 || node >= units_.size() || label_of(units_[node]) != label) return std::nullopt;
    const uint32_t unit = units_[node];
    node ^= offset_of(unit);
    if (!has_leaf(unit)) continue;
    if (node >= units_.size()) return std::nullopt;
    const size_t begin = value_of(units_[node]);
    if (begin >= replacements_.size()) return std::nullopt;
    return std::string_view(replacements_.c_str() + begin);  // up to its NUL
  }
  return std::nullopt;
}

void Charsmap::apply(MarkedText& text) const {
  Rewriter out(text);
  const std::string_view source = text.text;
  unicode::for_each_grapheme(source, [&](size_t begin, size_t end) {
    if (end - begin <= kGraphemeBytesMax) {
      if (const auto replacement = find(source.substr(begin, end - begin))) return out.put(*replacement, begin, end);
    }
    for (size_t at = begin, bytes = 0; at < end; at += bytes) {
      unicode::decode(source, at, &bytes);
      if (const auto replacement = find(source.substr(at, bytes))) {
        out.put(*replacement, at, at + bytes);
      } else {
        out.keep(at, at + bytes);
      }
    }
  });
  text = out.take();
}

}  // namespace shoal
