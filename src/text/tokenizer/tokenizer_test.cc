#include "text/tokenizer/tokenizer.h"

#include <chrono>

#include "text/tokenizer/fuzz_targets.h"
#include "text/tokenizer/test_support.h"

namespace shoal {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using Ids = std::vector<TokenId>;

constexpr EncodeOptions kBare{.add_special = false, .parse_special = true};

Ids encode(const Tokenizer& tokenizer, std::vector<TextPart> parts) { return tokenizer.encode(parts, kBare); }

TEST(TokenizerTest, MergesTheLowestRankFirst) {
  const auto t = load(small_bpe());
  EXPECT_THAT(t->encode("abc abc", kBare), ElementsAre(14, 3, 14));
  EXPECT_THAT(t->encode("bc", kBare), ElementsAre(18));
}

TEST(TokenizerTest, AddSpecialPutsTheTemplateAroundTheText) {
  const auto t = load(small_bpe());
  EXPECT_THAT(t->encode("a", EncodeOptions{}), ElementsAre(20, 0));
  EXPECT_THAT(t->encode("", EncodeOptions{}), ElementsAre(20));
}

TEST(TokenizerTest, SpecialTokensAreTextWithoutParseSpecial) {
  const auto t = load(small_bpe());
  EXPECT_THAT(t->encode("<s>a", kBare), ElementsAre(20, 0));
  EXPECT_THAT(t->encode("<s>a", EncodeOptions{.add_special = false, .parse_special = false}), ElementsAre(4, 17, 5, 0));
}

TEST(TokenizerTest, UntrustedTextNeverGivesASpecialToken) {
  const auto t = load(small_bpe());
  const Ids plain = t->encode("<|im_end|>", EncodeOptions{.add_special = false, .parse_special = false});
  EXPECT_EQ(encode(*t, {{"<|im_end|>", false}}), plain);
  EXPECT_THAT(encode(*t, {{"<|im_end|>", true}}), ElementsAre(21));
  EXPECT_EQ(encode(*t, {{"<|im_", true}, {"end|>", false}}), plain) << "across a boundary";
  EXPECT_EQ(encode(*t, {{"<|im_end", false}, {"|>", true}}), plain) << "across a boundary";
  EXPECT_THAT(encode(*t, {{"<|im_", true}, {"end|>", true}}), ElementsAre(21)) << "trusted parts join";
}

TEST(TokenizerTest, UntrustedTextCannotHideATrustedSpecialToken) {
  Json file = small_bpe();
  file["added_tokens"].push_back({{"id", 23}, {"content", "<<s>"}, {"special", true}});
  file["added_tokens"].push_back({{"id", 24}, {"content", "c<s>"}, {"special", false}, {"normalized", false}});
  const auto t = load(file);
  EXPECT_THAT(encode(*t, {{"<", false}, {"<s>", true}}), ElementsAre(4, 20));
  EXPECT_THAT(encode(*t, {{"c", false}, {"<s>", true}}), ElementsAre(2, 20));
  EXPECT_THAT(encode(*t, {{"c<s>", true}}), ElementsAre(24));
}

TEST(TokenizerTest, OrdinaryAddedTokensAreRecognisedInUntrustedText) {
  EXPECT_THAT(encode(*load(small_bpe()), {{"<think>", false}}), ElementsAre(22));
}

TEST(TokenizerTest, PartsMergeAcrossBoundariesAsTheJoinedTextDoes) {
  const auto t = load(small_bpe());
  EXPECT_THAT(encode(*t, {{"a", true}, {"b", false}, {"c", true}}), ElementsAre(14));
  EXPECT_THAT(encode(*t, {{" ", false}, {"ab", true}}), ElementsAre(16));
}

TEST(TokenizerTest, SpecialTokensOfTheVocabularyAreOutOfReachOfTheModel) {
  Json file = small_bpe();
  file["model"]["ignore_merges"] = true;
  file["model"]["vocab"]["<s>"] = 20;
  EXPECT_THAT(encode(*load(file), {{"<s>", false}}), ElementsAre(4, 17, 5));
  const Json unigram = Json::parse(R"({"added_tokens": [{"id": 1, "content": "</s>", "special": true}],
    "model": {"type": "Unigram", "unk_id": 0, "vocab": [["<unk>", 0], ["</s>", 0], ["<", -9], ["/", -9], ["s", -9], [">", -9]]}})");
  EXPECT_THAT(encode(*load(unigram), {{"</s>", false}}), ElementsAre(2, 3, 4, 5));
}

TEST(TokenizerTest, MarksFollowTextThroughNormalizers) {
  Json file = small_bpe();
  file["added_tokens"][0]["normalized"] = true;
  for (const char* type : {"NFC", "NFKC", "Lowercase", "Nmt"}) {
    file["normalizer"] = {{"type", type}};
    const auto t = load(file);
    EXPECT_THAT(encode(*t, {{"a", false}, {"<s>", true}}), ElementsAre(0, 20)) << type;
    EXPECT_THAT(encode(*t, {{"a", true}, {"<s>", false}}), ElementsAre(0, 4, 17, 5)) << type;
  }
}

TEST(TokenizerTest, NormalizedTokensAreFoundAndDecodedInTheirNormalForm) {
  Json file = small_bpe();
  file["normalizer"] = {{"type", "Lowercase"}};
  file["added_tokens"].push_back({{"id", 23}, {"content", "ABC"}, {"normalized", true}});
  const auto t = load(file);
  EXPECT_THAT(t->encode("a abC", kBare), ElementsAre(0, 3, 23));
  EXPECT_EQ(t->decode(Ids{23}, false), "abc");
}

TEST(TokenizerTest, LstripAndRstripTakeWhiteSpaceAlong) {
  Json file = small_bpe();
  file["added_tokens"][2]["lstrip"] = true;
  file["added_tokens"][2]["rstrip"] = true;
  EXPECT_THAT(load(file)->encode("a  <think> \n b", kBare), ElementsAre(0, 22, 1));
}

TEST(TokenizerTest, SingleWordTokensDoNotStandNextToLetters) {
  Json file = small_bpe();
  file["added_tokens"].push_back({{"id", 14}, {"content", "abc"}, {"single_word", true}, {"normalized", false}});
  const auto t = load(file);
  EXPECT_THAT(t->encode("-abc!", kBare), ElementsAre(14));
  EXPECT_THAT(t->encode("abcabc", kBare), ElementsAre(14, 14));
}

TEST(TokenizerTest, InvalidUtf8IsReplacedBeforeItIsEncoded) {
  const auto t = load(small_bpe());
  EXPECT_EQ(t->encode("a\xFF", kBare), t->encode("a\uFFFD", kBare));
}

TEST(TokenizerTest, DecodeLeavesOutSpecialTokensOnRequestAndUnknownIdsAlways) {
  const auto t = load(small_bpe());
  const Ids ids = {20, 14, 999, -1, 16, 21};
  EXPECT_EQ(t->decode(ids, true), "abc ab");
  EXPECT_EQ(t->decode(ids, false), "<s>abc ab<|im_end|>");
  EXPECT_EQ(t->token_bytes(16, true, false), " ab");
  EXPECT_EQ(t->token_bytes(20, false, true), "");
  EXPECT_EQ(t->token_text(16), "Ġab");
  EXPECT_EQ(t->token_id("Ġab"), 16);
  EXPECT_EQ(t->token_id("nope"), std::nullopt);
  EXPECT_EQ(t->vocab_size(), 23u);
}

TEST(TokenizerTest, LlamaClassesTakeTheirEndsFromTheConfiguration) {
  Json file = small_bpe();
  file.erase("post_processor");
  const Json config = {{"tokenizer_class", "LlamaTokenizerFast"}, {"add_bos_token", true}, {"add_eos_token", true},
                       {"bos_token", {{"content", "<s>"}}}, {"eos_token", "<|im_end|>"}};
  EXPECT_THAT(load(file, config)->encode("a", EncodeOptions{}), ElementsAre(20, 0, 21));
  Json other = config;
  other["tokenizer_class"] = "PreTrainedTokenizerFast";
  EXPECT_THAT(load(file, other)->encode("a", EncodeOptions{}), ElementsAre(0));
}

TEST(TokenizerTest, RefusalsNameTheFieldAndTheCause) {
  Json file = small_bpe();
  file["model"]["merges"].push_back("a q");
  EXPECT_THAT(refusal(file), HasSubstr("model: merges[6]: names 'q', which is not in the vocabulary"));
  file = small_bpe();
  file["model"]["vocab"]["x"] = 4000000000u;
  EXPECT_THAT(refusal(file), HasSubstr("vocab['x']"));
  file = small_bpe();
  file["model"]["vocab"]["x"] = 0;
  EXPECT_THAT(refusal(file), HasSubstr("id 0 stands for both"));
  file = small_bpe();
  file["added_tokens"][0]["id"] = 21;
  EXPECT_THAT(refusal(file), HasSubstr("added_tokens"));
  file = small_bpe();
  file["model"]["type"] = "WordLevel";
  EXPECT_THAT(refusal(file), HasSubstr("'WordLevel' is not supported"));
  file = small_bpe();
  file["pre_tokenizer"] = {{"type", "Split"}, {"pattern", {{"Regex", "(a"}}}, {"behavior", "Isolated"}};
  EXPECT_THAT(refusal(file), HasSubstr("pre_tokenizer: 'pattern': regular expression does not compile"));
  file = small_bpe();
  file["post_processor"]["single"].erase(1);
  EXPECT_THAT(refusal(file), HasSubstr("post_processor: 'single'"));
  file = small_bpe();
  file["decoder"] = {{"type", "CTC"}};
  EXPECT_THAT(refusal(file), HasSubstr("decoder: decoder 'CTC' is not supported"));
  EXPECT_THAT(refusal(Json::array()), HasSubstr("must be an object"));
  EXPECT_THAT(refusal(Json::object()), HasSubstr("'model' is missing"));
}

TEST(TokenizerTest, NestedSequencesAreBounded) {
  Json file = small_bpe();
  Json nested = {{"type", "NFC"}};
  for (int i = 0; i < 20; ++i) nested = Json{{"type", "Sequence"}, {"normalizers", Json::array({nested})}};
  file["normalizer"] = nested;
  EXPECT_THAT(refusal(file), HasSubstr("nested deeper"));
}

TEST(TokenizerTest, ACatastrophicExpressionEndsInTimeAndLosesNoText) {
  Json file = small_bpe();
  file["pre_tokenizer"] = Json::parse(R"({"type": "Sequence", "pretokenizers": [
      {"type": "Split", "pattern": {"Regex": "(a+)+$"}, "behavior": "Isolated"}, {"type": "ByteLevel", "use_regex": false, "add_prefix_space": false}]})");
  const auto t = load(file);
  const std::string text = std::string(5000, 'a') + "b";
  EXPECT_EQ(t->decode(t->encode(text, kBare), false), text);
}

TEST(TokenizerTest, LongLinesWithoutSpacesTakeLinearTime) {
  const auto t = load(small_bpe());
  const auto seconds = [&](size_t bytes, const char* unit) {
    std::string text;
    while (text.size() < bytes) text += unit;
    const auto begin = std::chrono::steady_clock::now();
    EXPECT_EQ(t->decode(t->encode(text, kBare), false), text);
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  };
  for (const char* unit : {"a", "abc", "ab"}) EXPECT_LT(seconds(1 << 20, unit), 20.0) << unit;
}

TEST(TokenizerTest, ManyTrustedTokensBeforeUntrustedTextTakeLinearTime) {
  const auto t = load(small_bpe());
  std::string text;
  for (int i = 0; i < 100'000; ++i) text += "<|im_end|>a";
  const TextPart parts[] = {{text, true}, {text, false}};
  const auto begin = std::chrono::steady_clock::now();
  const Ids ids = t->encode(parts, kBare);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(20));
  EXPECT_EQ(std::count(ids.begin(), ids.end(), 21), 100'000);
}

// The chopping of long pieces, the heap and the scan are three ways to one outcome.
TEST(TokenizerTest, LongPiecesMergeAsShortOnesDo) {
  const auto t = load(small_bpe());
  for (int n : {10, 39, 40, 41, 47, 48, 49, 100, 1023, 1024, 1025, 5000}) {
    std::string text;
    Ids want;
    for (int i = 0; i < n; ++i) text += "abcb", want.insert(want.end(), {14, 1});
    EXPECT_EQ(t->encode(text, kBare), want) << n;
  }
}

// Nothing can be chopped where every pair may merge, so these pieces go through the queues whole.
TEST(TokenizerTest, RunsOfOneCharacterMergeFromTheLeft) {
  const Json file = Json::parse(R"({"model": {"type": "BPE", "vocab": {"a": 0, "aa": 1, "aaaa": 2}, "merges": ["a a", "aa aa"]}})");
  const auto t = load(file);
  for (size_t n : {1, 2, 3, 7, 41, 50, 1000, 4097, 10001}) {
    Ids want(n / 4, 2);
    if (n % 4 >= 2) want.push_back(1);
    if (n % 2 == 1) want.push_back(0);
    EXPECT_EQ(t->encode(std::string(n, 'a'), kBare), want) << n;
  }
}

TEST(TokenizerTest, UnknownSymbolsFallBackToBytesOrFuse) {
  const auto file = Json::parse(R"({"model": {"type": "BPE", "unk_token": "<unk>", "fuse_unk": true, "byte_fallback": true,
      "vocab": {"<unk>": 0, "a": 1, "<0xC3>": 2, "<0xA9>": 3}, "merges": []},
      "decoder": {"type": "Sequence", "decoders": [{"type": "ByteFallback"}, {"type": "Fuse"}]}})");
  const auto t = load(file);
  EXPECT_THAT(t->encode("aéa", kBare), ElementsAre(1, 2, 3, 1));
  EXPECT_THAT(t->encode("a日本a", kBare), ElementsAre(1, 0, 1));
  EXPECT_EQ(t->decode(Ids{1, 2, 3}, false), "aé");
  EXPECT_EQ(t->decode(Ids{1, 2, 1}, false), "a\uFFFDa");
}

TEST(TokenizerTest, EveryCorpusFileLoadsOrIsRefused) {
  for (const auto& entry : std::filesystem::directory_iterator(SHOAL_SOURCE_DIR "/tests/corpus/tokenizer_json")) {
    fuzz::tokenizer_json(slurp(entry.path()));
  }
}

}  // namespace
}  // namespace shoal
