// Byte pair encoding: pieces start as single symbols, and the adjacent pair of lowest rank is merged until none is left.
#pragma once

#include <array>
#include <bitset>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "text/tokenizer/string_map.h"
#include "text/tokenizer/token_model.h"
#include "text/tokenizer/word_cache.h"

namespace shoal {

struct BpeMerge {
  TokenId left, right, result;
  uint32_t rank;  // lower merges first; equal ranks merge from left to right
};

// Already validated: ids are those of `vocab` (or of `symbols`).
struct BpeConfig {
  // Spelling -> id, without tokens that text must never give (control tokens). With raw_bytes the spellings are the
  // bytes they stand for, and symbols are bytes; otherwise symbols are code points.
  StringMap<TokenId> vocab;
  std::vector<BpeMerge> merges;
  bool raw_bytes = false;
  bool ignore_merges = false;                // a piece that is a token as a whole is that token
  bool byte_fallback = false;                // an unknown symbol becomes its bytes' tokens, if all of them exist
  std::array<TokenId, 256> byte_tokens{};    // -1 where there is none
  std::optional<TokenId> unk;                // without it unknown symbols vanish
  bool fuse_unk = false;                     // adjacent unknown symbols give one unk
  std::string continuing_prefix, end_suffix; // of the spellings of symbols that do not begin / that end a piece
  // Symbols that are no tokens but may become part of one: their ids are past the vocabulary and never leave encode().
  StringMap<TokenId> extra_symbols;
};

class Bpe : public TokenModel {
 public:
  explicit Bpe(BpeConfig config);
  void encode(std::string_view piece, size_t tokens_max, std::vector<TokenId>& out) const override;
  size_t token_bytes_max() const override;

 private:
  struct MergeTo {
    uint32_t rank;
    TokenId result;
  };
  static constexpr TokenId kNone = -1;

  void index_symbols();
  void index_merges();
  const MergeTo* find_merge(TokenId left, TokenId right) const;
  TokenId symbol_id(std::string_view symbol) const;
  size_t symbol_bytes(std::string_view text, size_t at) const;
  bool may_merge_across(std::string_view left, std::string_view right) const;
  void encode_long(std::string_view piece, size_t tokens_max, std::vector<TokenId>& out) const;
  void encode_word(std::string_view word, std::vector<TokenId>& out) const;
  void encode_uncached(std::string_view word, std::vector<TokenId>& out) const;
  void to_symbols(std::string_view word, std::vector<TokenId>& ids) const;
  bool fall_back(std::string_view symbol, std::vector<TokenId>& ids) const;
  void merge_short(std::vector<TokenId>& ids) const;
  template <typename Queue>
  void merge_queued(std::vector<TokenId>& ids) const;
  void emit(const std::vector<TokenId>& ids, std::vector<TokenId>& out) const;

  const BpeConfig config_;
  const bool plain_symbols_;                      // no prefix, no suffix: a symbol's id depends on nothing else
  std::array<TokenId, 256> single_byte_symbols_;  // ids of the symbols of one byte
  absl::flat_hash_map<uint64_t, MergeTo> merges_;
  std::vector<std::string> extra_spelling_;       // of config_.extra_symbols, by id - extra_first_
  TokenId extra_first_ = 0;
  // A filter over (last symbol of a left side, first symbol of a right side): where it says no, no merge ever crosses,
  // so a long piece can be cut there without changing the outcome.
  static constexpr size_t kCrossingBits = 1 << 20;
  std::unique_ptr<std::bitset<kCrossingBits>> crossings_;
  mutable WordCache cache_;
};

}  // namespace shoal
