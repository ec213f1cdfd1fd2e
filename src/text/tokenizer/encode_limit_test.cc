// Encoding that stops early, and how many tokens a text must have by its size alone.
#include <cmath>
#include <cstring>

#include "text/tokenizer/test_support.h"
#include "text/tokenizer/tokenizer.h"

namespace shoal {
namespace {

namespace fs = std::filesystem;
using Ids = std::vector<TokenId>;

constexpr const char* kTexts[] = {
    "",
    "abc abc  abc\n\n<think>ab<s>c",
    "The quick brown fox jumps over 12345 lazy dogs,   doesn't it?\n\t<|im_end|> \u00e9\u65e5\u672c\u8a9e\U0001F600",
    "                                                                                  x",
    "e\u0301e\u0301e\u0301\u1100\u1161\u11a8\u1100\u1161\u11a8",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
};

// What is promised of any limit, and of any text's size.
void expect_limits_hold(const Tokenizer& t, const std::string& text) {
  for (const bool special : {false, true}) {
    const Ids all = t.encode(text, EncodeOptions{.add_special = special});
    EXPECT_LE(t.tokens_min(text.size()), all.size()) << text;
    for (size_t most = 0; most <= all.size() + 1; ++most) {
      const Ids some = t.encode(text, EncodeOptions{.add_special = special, .tokens_max = most});
      if (all.size() <= most) {
        EXPECT_EQ(some, all) << text;
      } else {
        EXPECT_GT(some.size(), most) << text;
        ASSERT_LE(some.size(), all.size());
        EXPECT_TRUE(std::equal(some.begin(), some.end(), all.begin())) << text << ": " << most;
      }
    }
  }
}

void expect_limits_hold(const Tokenizer& t) {
  for (const char* text : kTexts) expect_limits_hold(t, text);
}

Json metaspace_unigram() {
  return Json::parse(R"({"pre_tokenizer": {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first", "split": true},
    "model": {"type": "Unigram", "unk_id": 0, "vocab": [["<unk>", 0], ["▁", -3], ["a", -2], ["aa", -3], ["aaa", -4.5], ["▁a", -2],
                                                        ["b", -2], ["ab", -2.5], ["▁ab", -3], ["x", -4]]}})");
}

TEST(EncodeLimitTest, WhatFitsIsWholeAndWhatDoesNotIsABeginning) {
  expect_limits_hold(*load(small_bpe()));
  expect_limits_hold(*load(metaspace_unigram()));
  Json file = small_bpe();
  for (const char* behavior : {"Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous"}) {
    const Json split = {{"type", "Split"}, {"pattern", {{"Regex", "\\s"}}}, {"behavior", behavior}};
    file["pre_tokenizer"] = {{"type", "Sequence"}, {"pretokenizers", {split, {{"type", "ByteLevel"}, {"use_regex", false}}}}};
    expect_limits_hold(*load(file));
  }
  file["normalizer"] = {{"type", "NFC"}};
  file["added_tokens"][0]["normalized"] = true;
  expect_limits_hold(*load(file));
}

TEST(EncodeLimitTest, SharedTokenizersKeepTheirLimits) {
  if (!fs::exists(shared_data("tokenizers"))) GTEST_SKIP() << "shared data is not here";
  for (const auto& entry : fs::directory_iterator(shared_data("tokenizers"))) {
    SCOPED_TRACE(entry.path());
    expect_limits_hold(**load_hf_tokenizer(entry.path()));
  }
}

TEST(EncodeLimitTest, EncodingStopsSoonAfterItsLimit) {
  for (const Json& file : {small_bpe(), metaspace_unigram()}) {
    std::string text;
    for (int i = 0; i < 100'000; ++i) text += "ab ";
    EXPECT_LT(load(file)->encode(text, EncodeOptions{.tokens_max = 10}).size(), 4000u);
  }
}

TEST(EncodeLimitTest, TheSizeOfATextBoundsItsTokensOnlyWhereNothingIsDropped) {
  Json file = small_bpe();
  EXPECT_EQ(load(file)->tokens_min(1000), 0u) << "a symbol that is not in the vocabulary vanishes";
  file["model"]["vocab"]["<unk>"] = 30;
  file["model"]["unk_token"] = "<unk>";
  EXPECT_EQ(load(file)->tokens_min(1000), 100u) << "the longest token is <|im_end|>";
  for (const char* strip : {"lstrip", "rstrip"}) {
    Json stripping = file;
    stripping["added_tokens"][0][strip] = true;
    EXPECT_EQ(load(stripping)->tokens_min(1000), 0u);
  }
  for (const char* type : {"Nmt", "StripAccents", "Strip", "BertNormalizer"}) {
    Json dropping = file;
    dropping["normalizer"] = {{"type", type}};
    EXPECT_EQ(load(dropping)->tokens_min(1000), 0u) << type;
  }
  Json composing = file;
  composing["normalizer"] = {{"type", "NFC"}};
  EXPECT_EQ(load(composing)->tokens_min(16'000), 100u);
  Json fusing = file;
  fusing["model"]["fuse_unk"] = true;
  EXPECT_EQ(load(fusing)->tokens_min(1000), 0u);
  Json removing = file;
  removing["pre_tokenizer"] = {{"type", "WhitespaceSplit"}};
  EXPECT_EQ(load(removing)->tokens_min(1000), 0u);
}

// The best way through a text whose pieces are given, by all of its places at once.
Ids best_path(const Json& vocab, std::string_view text) {
  struct Best {
    double score = -INFINITY;
    size_t begin = 0;
    TokenId id = 0;
  };
  std::vector<Best> best(text.size() + 1);
  best[0].score = 0;
  for (size_t at = 0; at < text.size(); ++at) {
    bool single = false;
    const auto offer = [&](size_t bytes, double score, TokenId id) {
      if (best[at].score + score > best[at + bytes].score) best[at + bytes] = {best[at].score + score, at, id};
    };
    for (size_t bytes = 1; bytes <= 4 && at + bytes <= text.size(); ++bytes) {
      for (size_t id = 1; id < vocab.size(); ++id) {
        if (vocab[id][0] != std::string(text.substr(at, bytes))) continue;
        offer(bytes, vocab[id][1], static_cast<TokenId>(id));
        single |= bytes == 1;
      }
    }
    if (!single) offer(1, -20.0, 0);  // 10 below the lowest score
  }
  Ids ids;
  for (size_t end = text.size(); end > 0; end = best[end].begin) {
    if (best[end].id != 0 || ids.empty() || ids.back() != 0) ids.push_back(best[end].id);  // unknown ones are one
  }
  std::reverse(ids.begin(), ids.end());
  return ids;
}

TEST(EncodeLimitTest, LongUnigramTextsTakeTheBestPathOfAll) {
  const Json vocab = Json::parse(R"([["<unk>", 0], ["a", -2.25], ["aa", -4.25], ["aaa", -6.5], ["b", -2], ["ab", -3.5], ["abb", -5.25], ["xa", -10]])");
  const auto t = load({{"model", {{"type", "Unigram"}, {"unk_id", 0}, {"vocab", vocab}}}});
  uint32_t state = 7;
  for (const char* letters : {"a", "aaaaaab", "ab", "aaabxy", "x"}) {
    std::string text;
    for (int i = 0; i < 20'000; ++i) text += letters[((state = state * 1664525u + 1013904223u) >> 16) % std::strlen(letters)];
    EXPECT_EQ(t->encode(text, EncodeOptions{}), best_path(vocab, text)) << letters;
  }
}

}  // namespace
}  // namespace shoal
