#include "text/tokenizer/wordpiece.h"

#include <algorithm>

namespace shoal {
namespace {

bool begins_code_point(char c) { return (c & 0xc0) != 0x80; }

}  // namespace

WordPiece::WordPiece(const WordPieceConfig& config) : unk_(config.unk), word_code_points_max_(config.word_code_points_max) {
  std::vector<ByteTrie::Entry> begins, continues;
  for (const auto& [text, id] : config.tokens) {
    std::string_view spelling = text;
    begins.push_back({spelling, id});
    if (!spelling.starts_with(config.continuing_prefix)) continue;
    spelling.remove_prefix(config.continuing_prefix.size());
    continues.push_back({spelling, id});
  }
  begins_ = ByteTrie(std::move(begins));
  continues_ = ByteTrie(std::move(continues));
}

void WordPiece::encode(std::string_view piece, size_t, std::vector<TokenId>& out) const {
  const size_t before = out.size();
  const bool long_word = static_cast<size_t>(std::count_if(piece.begin(), piece.end(), begins_code_point)) > word_code_points_max_;
  for (size_t at = 0; at < piece.size() && !long_word;) {
    const ByteTrie& trie = at == 0 ? begins_ : continues_;
    size_t longest = 0;
    TokenId found = 0;
    uint32_t node = trie.first(static_cast<uint8_t>(piece[at]));
    for (size_t end = at + 1; node != ByteTrie::kNone; ++end) {
      const bool whole = end == piece.size() || begins_code_point(piece[end]);
      if (whole && trie.value(node) >= 0) longest = end - at, found = trie.value(node);
      if (end == piece.size()) break;
      node = trie.next(node, static_cast<uint8_t>(piece[end]));
    }
    if (longest == 0) break;
    out.push_back(found);
    at += longest;
    if (at == piece.size()) return;
  }
  out.resize(before);
  out.push_back(unk_);
}

}  // namespace shoal
