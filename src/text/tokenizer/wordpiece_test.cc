#include "text/tokenizer/wordpiece.h"

#include <gtest/gtest.h>

namespace shoal {
namespace {

std::vector<TokenId> encode(std::string_view word, uint32_t code_points_max = 100) {
  const WordPiece model({.tokens = {{"un", 1}, {"##aff", 2}, {"##able", 3}, {"##a", 4}, {"u", 5}, {"z", 6}, {"##ü", 7}, {"##", 8}}, .unk = 0,
                         .word_code_points_max = code_points_max});
  std::vector<TokenId> out;
  model.encode(word, SIZE_MAX, out);
  return out;
}

TEST(WordPiece, TakesTheLongestBeginningAndThenTheLongestContinuations) {
  EXPECT_EQ(encode("unaffable"), (std::vector<TokenId>{1, 2, 3}));
  EXPECT_EQ(encode("unaable"), (std::vector<TokenId>{1, 4, 3}));
  EXPECT_EQ(encode("zü"), (std::vector<TokenId>{6, 7}));
}

TEST(WordPiece, AWordThatCannotBeCutToItsEndIsOneUnknown) {
  for (const char* word : {"x", "unx", "unaffx", "able", "z\xc3"}) EXPECT_EQ(encode(word), std::vector<TokenId>{0}) << word;
}

TEST(WordPiece, AWordOfTooManyCodePointsIsUnknown) {
  EXPECT_EQ(encode("zü", 2).size(), 2u);
  EXPECT_EQ(encode("zü", 1), std::vector<TokenId>{0});
}

TEST(WordPiece, KeepsWhatWasThere) {
  const WordPiece model({.tokens = {{"a", 1}}, .unk = 9});
  std::vector<TokenId> out = {7};
  model.encode("ab", SIZE_MAX, out);
  EXPECT_EQ(out, (std::vector<TokenId>{7, 9}));
}

}  // namespace
}  // namespace shoal
