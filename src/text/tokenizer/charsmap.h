// The precompiled character map of SentencePiece models: a double-array trie from byte strings to replacements.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "text/tokenizer/marked_text.h"

namespace shoal {

// Layout of the blob: uint32 trie_bytes | trie_bytes of uint32 units (little endian) | NUL-terminated replacements.
class Charsmap {
 public:
  static StatusOr<Charsmap> parse(std::string_view blob);

  // Replaces each grapheme cluster of fewer than 6 bytes as a whole where the map knows it (or its beginning), and
  // otherwise each code point on its own: the rule of the reference library.
  void apply(MarkedText& text) const;

 private:
  // The replacement of the shortest known prefix of `chunk`.
  std::optional<std::string_view> find(std::string_view chunk) const;

  std::vector<uint32_t> units_;
  std::string replacements_;
};

}  // namespace shoal
