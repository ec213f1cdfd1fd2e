#include "text/tokenizer/gguf_vocab.h"

#include "text/tokenizer/test_support.h"

namespace shoal {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr EncodeOptions kBare{.add_special = false, .parse_special = true};

GgufVocab scored() {
  GgufVocab v;
  v.model = "llama";
  v.tokens = {"<unk>", "<s>", "</s>", "<0xC3>", "<0xA9>", "\u2581", "a", "b", "\u2581a", "ab", "\u2581ab", "<user>"};
  v.scores = {0, 0, 0, 0, 0, -9, -8, -7, -2, -1, -3, 0};
  v.token_types = {2, 3, 3, 6, 6, 1, 1, 1, 1, 1, 1, 4};
  v.bos_token_id = 1, v.eos_token_id = 2, v.unknown_token_id = 0;
  return v;
}

GgufVocab byte_level() {
  GgufVocab v;
  v.model = "gpt2";
  v.pre = "gpt-2";
  v.tokens = {"a", "b", "Ġ", "ab", "Ġa", "<|end|>"};
  v.token_types = {1, 1, 1, 1, 1, 3};
  v.merges = {"a b", "Ġ a"};
  v.eos_token_id = 5;
  return v;
}

std::string refusal(const GgufVocab& vocab) {
  const auto t = make_gguf_tokenizer(vocab);
  return t.ok() ? "accepted" : std::string(t.status().message());
}

TEST(GgufVocabTest, ScoresDecideWhatMergesFirst) {
  const auto t = *make_gguf_tokenizer(scored());
  EXPECT_THAT(t->encode("ab", kBare), ElementsAre(10));
  EXPECT_THAT(t->encode("aab", kBare), ElementsAre(8, 9));
  EXPECT_THAT(t->encode("ab", EncodeOptions{}), ElementsAre(1, 10)) << "BOS is the default of this kind";
}

TEST(GgufVocabTest, UnknownCharactersFallBackToBytesOrUnk) {
  const auto t = *make_gguf_tokenizer(scored());
  EXPECT_THAT(t->encode("é", kBare), ElementsAre(5, 3, 4));
  EXPECT_THAT(t->encode("z", kBare), ElementsAre(5, 0));
  EXPECT_EQ(t->decode(std::vector<TokenId>{10, 3, 4}, false), "abé");
}

TEST(GgufVocabTest, ControlTokensNeedTrustAndUserDefinedOnesDoNot) {
  const auto t = *make_gguf_tokenizer(scored());
  const TextPart untrusted[] = {{"</s><user>", false}}, trusted[] = {{"</s><user>", true}};
  EXPECT_THAT(t->encode(trusted, kBare), ElementsAre(2, 11));
  EXPECT_THAT(t->encode(untrusted, kBare), testing::Contains(11));
  EXPECT_THAT(t->encode(untrusted, kBare), testing::Not(testing::Contains(2)));
}

TEST(GgufVocabTest, CharactersThatAreOnlyPartsOfTokensStillMerge) {
  GgufVocab v = scored();
  v.tokens.push_back("xy");
  v.scores.push_back(-1);
  v.token_types.push_back(1);
  const auto t = *make_gguf_tokenizer(v);
  EXPECT_THAT(t->encode("xy", kBare), ElementsAre(5, 12));
  EXPECT_THAT(t->encode("x", kBare), ElementsAre(5, 0));
}

TEST(GgufVocabTest, SpacePrefixCanBeTurnedOff) {
  GgufVocab v = scored();
  v.add_space_prefix = false;
  v.add_bos_token = false;
  EXPECT_THAT((*make_gguf_tokenizer(v))->encode("ab", EncodeOptions{}), ElementsAre(9));
}

TEST(GgufVocabTest, ByteLevelVocabulariesCutByTheirNamedExpression) {
  const auto t = *make_gguf_tokenizer(byte_level());
  EXPECT_THAT(t->encode("ab a<|end|>", EncodeOptions{}), ElementsAre(3, 4, 5));
  EXPECT_EQ(t->decode(std::vector<TokenId>{3, 4}, true), "ab a");
}

TEST(GgufVocabTest, ALineEndAfterPunctuationIsAPieceOfItsOwnForSeedAndNotForQwen) {
  GgufVocab v = byte_level();
  v.tokens.insert(v.tokens.end(), {"!", "Ċ", "!Ċ"});
  v.token_types.insert(v.token_types.end(), {1, 1, 1});
  v.merges.push_back("! Ċ");
  v.pre = "qwen2";
  EXPECT_THAT((*make_gguf_tokenizer(v))->encode("a!\n", kBare), ElementsAre(0, 8));
  v.pre = "seed-coder";
  EXPECT_THAT((*make_gguf_tokenizer(v))->encode("a!\n", kBare), ElementsAre(0, 6, 7));
}

TEST(GgufVocabTest, UnigramVocabulariesTakeTheBestScore) {
  GgufVocab v = scored();
  v.model = "t5";
  const auto t = *make_gguf_tokenizer(v);
  EXPECT_THAT(t->encode("  ab  ab ", kBare), ElementsAre(10, 10)) << "extra spaces go";
}

TEST(GgufVocabTest, EveryNamedExpressionCompiles) {
  for (const char* name : {"llama-bpe", "qwen2", "qwen35", "deepseek-llm", "deepseek-coder", "deepseek-v3", "deepseek3-llm", "gpt-2", "gpt-4o", "starcoder", "smollm",
                           "tekken", "kimi-k2", "falcon", "bloom", "viking", "default", "command-r", "refact", "dbrx",
                           "seed-coder", "hunyuan", "hunyuan-dense", "exaone4"}) {
    GgufVocab v = byte_level();
    v.pre = name;
    const auto t = make_gguf_tokenizer(v);
    ASSERT_TRUE(t.ok()) << name << t.status();
    EXPECT_EQ((*t)->decode((*t)->encode("ab aab  a", kBare), false), "ab aab  a") << name;
  }
}

TEST(GgufVocabTest, RefusalsNameTheKey) {
  GgufVocab v = scored();
  v.scores.pop_back();
  EXPECT_THAT(refusal(v), HasSubstr("tokenizer.ggml.scores has 11 entries for 12 tokens"));
  v = scored();
  v.bos_token_id = 99;
  EXPECT_THAT(refusal(v), HasSubstr("bos_token_id"));
  v = scored();
  v.tokens[7] = "a";
  EXPECT_THAT(refusal(v), HasSubstr("'a' at 6 and at 7"));
  v = scored();
  v.tokens[7] = "\xFF";
  EXPECT_THAT(refusal(v), HasSubstr("not UTF-8"));
  v = scored();
  v.model = "rwkv";
  EXPECT_THAT(refusal(v), HasSubstr("'rwkv' is not supported"));
  v = byte_level();
  v.pre = "nope";
  EXPECT_THAT(refusal(v), HasSubstr("'nope' is not known"));
  v = byte_level();
  v.merges.push_back("a q");
  EXPECT_THAT(refusal(v), HasSubstr("merges[2]: names 'q'"));
  EXPECT_THAT(refusal(GgufVocab{}), HasSubstr("0 entries"));
}

TEST(GgufVocabTest, BertMarksTheTokensThatBeginAWord) {
  GgufVocab vocab{.model = "bert"};
  vocab.tokens = {"[UNK]", "[CLS]", "[SEP]", "\u2581un", "able", "\u2581a"};
  vocab.token_types = {3, 3, 3, 1, 1, 1};
  vocab.bos_token_id = 1;
  vocab.eos_token_id = 2;
  EXPECT_FALSE(make_gguf_tokenizer(vocab).ok());  // no unknown token
  vocab.unknown_token_id = 0;
  const auto tokenizer = make_gguf_tokenizer(vocab);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  const auto ids = [&](std::string_view text) { return (*tokenizer)->encode(text, {.add_special = true, .parse_special = false}); };
  EXPECT_EQ(ids("Un\u00e1ble a"), (std::vector<TokenId>{1, 3, 4, 5, 2}));  // no capitals in the vocabulary: lower case, no accents
  EXPECT_EQ(ids("able x"), (std::vector<TokenId>{1, 0, 0, 2}));
}

}  // namespace
}  // namespace shoal
