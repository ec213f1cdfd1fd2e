#include "text/tokenizer/token_vocabulary.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/rng.h"
#include "text/tokenizer/byte_level.h"
#include "text/tokenizer/byte_trie.h"
#include "text/tokenizer/test_support.h"
#include "text/tokenizer/word_cache.h"

namespace shoal {
namespace {

using testing::ElementsAre;
using testing::ElementsAreArray;

TEST(TokenVocabulary, SpellsItsTokensAndKnowsThoseThatControl) {
  const TokenVocabulary vocabulary({{2, "ab", false}, {0, "a", false}, {5, "<end>", true}}, 8);
  EXPECT_EQ(vocabulary.size(), 8u);
  EXPECT_EQ(vocabulary.bytes(0), "a");
  EXPECT_EQ(vocabulary.bytes(2), "ab");
  EXPECT_EQ(vocabulary.bytes(1), "") << "a hole";
  for (const TokenId id : {-1, 8, 1'000'000}) {
    EXPECT_EQ(vocabulary.bytes(id), "");
    EXPECT_FALSE(vocabulary.is_control(id));
  }
  EXPECT_TRUE(vocabulary.is_control(5));
  EXPECT_EQ(vocabulary.token_id("<end>"), 5);
  EXPECT_EQ(vocabulary.token_id("nothing"), std::nullopt);
  EXPECT_EQ(vocabulary.token_bytes_max(), 5u);
  EXPECT_THAT(vocabulary.sorted_ids(), ElementsAre(0, 2)) << "a control token matches nothing";
}

// All ids whose bytes begin with `prefix`, by way of the trie.
std::vector<TokenId> below(const TokenVocabulary& vocabulary, const std::string& prefix) {
  uint32_t node = 0;
  for (const char c : prefix) {
    uint32_t child = node + 1;
    while (child < vocabulary.trie_node(node).subtree_end && vocabulary.trie_node(child).byte != static_cast<uint8_t>(c)) child = vocabulary.trie_node(child).subtree_end;
    if (child >= vocabulary.trie_node(node).subtree_end) return {};
    node = child;
  }
  const auto ids = vocabulary.sorted_ids();
  const uint32_t begin = vocabulary.trie_node(node).tokens, end = vocabulary.trie_node(vocabulary.trie_node(node).subtree_end).tokens;
  return {ids.begin() + begin, ids.begin() + end};
}

TEST(TokenVocabulary, TheTrieHoldsUnderANodeWhatBeginsLikeIt) {
  Rng rng(2);
  for (int round = 0; round < 50; ++round) {
    std::vector<TokenVocabulary::Token> tokens;
    for (TokenId id = 0; id < 60; ++id) {
      std::string bytes;
      for (uint64_t n = rng.below(5); n > 0; --n) bytes += static_cast<char>("ab\xff"[rng.below(3)]);
      tokens.push_back({id, bytes, false});
    }
    const TokenVocabulary vocabulary(tokens, 60);
    for (const std::string prefix : {"", "a", "ab", "aba", "\xff", "b\xff", "zz"}) {
      std::vector<TokenId> want;
      for (const auto& token : tokens) {
        if (!token.bytes.empty() && token.bytes.starts_with(prefix)) want.push_back(token.id);
      }
      std::vector<TokenId> got = below(vocabulary, prefix);
      std::sort(got.begin(), got.end());
      ASSERT_THAT(got, ElementsAreArray(want)) << prefix;
    }
  }
}

TEST(TokenVocabulary, TokensTooLongForTheTrieMatchNothing) {
  const TokenVocabulary vocabulary({{0, std::string(70'000, 'x'), false}, {1, "x", false}}, 2);
  EXPECT_EQ(vocabulary.bytes(0), "");
  EXPECT_THAT(vocabulary.sorted_ids(), ElementsAre(1));
  EXPECT_EQ(vocabulary.trie().back().subtree_end, vocabulary.trie().size());
}

TEST(TokenVocabulary, OfATokenizerHasItsBytesWithinAText) {
  const auto tokenizer = load(small_bpe());
  const auto vocabulary = TokenVocabulary::of(*tokenizer);
  EXPECT_EQ(vocabulary->bytes(15), " a") << "not the spelling of the vocabulary";
  EXPECT_TRUE(vocabulary->is_control(21));
  EXPECT_FALSE(vocabulary->is_control(22)) << "an added token is ordinary unless it is special";
  EXPECT_EQ(vocabulary->token_id("<|im_end|>"), 21);
}

TEST(ByteTrie, FindsEveryKeyThatBeginsAtAPlace) {
  const ByteTrie trie({{"a", 0}, {"abc", 1}, {"b", 2}, {"", 3}, {"a\xff", 4}, {"b", 5}});
  std::vector<int32_t> found;
  const std::string text = "abcd";
  uint32_t node = trie.first('a');
  for (size_t i = 1; node != ByteTrie::kNone; ++i) {
    if (trie.value(node) >= 0) found.push_back(trie.value(node));
    node = i < text.size() ? trie.next(node, static_cast<uint8_t>(text[i])) : ByteTrie::kNone;
  }
  EXPECT_THAT(found, ElementsAre(0, 1));
  EXPECT_EQ(trie.value(trie.first('b')), 5) << "of equal keys the last counts";
  EXPECT_EQ(trie.value(trie.next(trie.first('a'), 0xff)), 4);
  EXPECT_EQ(trie.first('z'), ByteTrie::kNone);
  EXPECT_EQ(ByteTrie().first('a'), ByteTrie::kNone);
}

TEST(ByteLevel, EveryByteHasACharacterOfItsOwnAndComesBack) {
  std::string all;
  for (int b = 0; b < 256; ++b) all += static_cast<char>(b);
  EXPECT_EQ(byte_level::to_bytes(byte_level::from_bytes(all)), all);
  EXPECT_EQ(byte_level::from_bytes(" a\n"), "ĠaĊ");
  EXPECT_EQ(byte_level::to_bytes("日"), std::nullopt) << "no byte is spelled so";
  EXPECT_EQ(byte_level::to_bytes(" "), std::nullopt) << "a blank is spelled otherwise";
}

TEST(WordCache, GivesBackWhatWasPutAndForgetsRatherThanGrow) {
  WordCache cache;
  std::vector<TokenId> out = {9};
  EXPECT_FALSE(cache.find("word", out));
  cache.put("word", std::vector<TokenId>{1, 2});
  EXPECT_TRUE(cache.find("word", out));
  EXPECT_THAT(out, ElementsAre(9, 1, 2)) << "appended";
  for (int i = 0; i < 300'000; ++i) cache.put("w" + std::to_string(i), std::vector<TokenId>{i});
  size_t known = 0;
  for (int i = 0; i < 300'000; ++i) {
    out.clear();
    if (!cache.find("w" + std::to_string(i), out)) continue;
    ++known;
    ASSERT_THAT(out, ElementsAre(i));
  }
  EXPECT_GT(known, 0u);
  EXPECT_LE(known, 16u * 4096u);
}

}  // namespace
}  // namespace shoal
