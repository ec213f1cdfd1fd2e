#include "text/tokenizer/detokenizer.h"

#include <fstream>
#include <sstream>

#include "text/tokenizer/fuzz_targets.h"
#include "text/tokenizer/test_support.h"

namespace shoal {
namespace {

using testing::ElementsAre;
using Ids = std::vector<TokenId>;

TokenId byte_id(int b) { return 3 + b; }

std::vector<std::string> pushes(const Tokenizer& tokenizer, const Ids& ids, bool skip_special = false) {
  Detokenizer stream(tokenizer, skip_special);
  std::vector<std::string> out;
  for (const TokenId id : ids) out.push_back(stream.push(id));
  out.push_back(stream.flush());
  return out;
}

TEST(DetokenizerTest, HoldsBytesUntilTheCodePointIsComplete) {
  const auto t = fuzz::byte_fallback_tokenizer();
  EXPECT_THAT(pushes(*t, {byte_id(0xF0), byte_id(0x9F), byte_id(0x99), byte_id(0x82)}), ElementsAre("", "", "", "\U0001F642", ""));
}

TEST(DetokenizerTest, AnUnfinishedSequenceBecomesReplacementCharacters) {
  const auto t = fuzz::byte_fallback_tokenizer();
  EXPECT_THAT(pushes(*t, {byte_id(0xE2), byte_id(0x82)}), ElementsAre("", "", "\uFFFD\uFFFD"));
  EXPECT_THAT(pushes(*t, {byte_id(0xE2), byte_id('a')}), ElementsAre("", "\uFFFDa", ""));
}

TEST(DetokenizerTest, StripsTheFirstSpaceOnly) {
  const auto t = fuzz::byte_fallback_tokenizer();
  const TokenId ab = *t->token_id("\u2581ab");
  EXPECT_THAT(pushes(*t, {ab, ab}), ElementsAre("ab", " ab", ""));
  EXPECT_THAT(pushes(*t, {1, ab, ab}, true), ElementsAre("", "ab", " ab", ""));
  EXPECT_THAT(pushes(*t, {1, ab}), ElementsAre("<s>", " ab", ""));
}

TEST(DetokenizerTest, DecodersThatLookAheadWaitForTheNextToken) {
  const Json file = Json::parse(R"({"model": {"type": "BPE", "vocab": {"a</w>": 0, "b</w>": 1}, "merges": []},
                                    "decoder": {"type": "BPEDecoder", "suffix": "</w>"}})");
  EXPECT_THAT(pushes(*load(file), {0, 1}), ElementsAre("", "a ", "b"));
}

TEST(DetokenizerTest, EveryCorpusFileHoldsTheProperties) {
  const auto t = fuzz::byte_fallback_tokenizer();
  for (const auto& entry : std::filesystem::directory_iterator(SHOAL_SOURCE_DIR "/tests/corpus/detokenizer")) {
    std::ifstream in(entry.path(), std::ios::binary);
    std::stringstream bytes;
    bytes << in.rdbuf();
    fuzz::detokenizer(*t, bytes.str());
  }
}

TEST(DetokenizerTest, RandomBytesHoldTheProperties) {
  const auto t = fuzz::byte_fallback_tokenizer();
  uint32_t state = 7;
  for (int round = 0; round < 500; ++round) {
    std::string input(static_cast<size_t>(round % 60), '\0');
    for (char& c : input) c = static_cast<char>((state = state * 1664525u + 1013904223u) >> 24);
    fuzz::detokenizer(*t, input);
  }
}

struct Matched {
  std::string shown;
  std::optional<std::string> stop;
};
Matched match(std::vector<std::string> stops, const std::vector<std::string>& pieces, bool include = false) {
  StopMatcher matcher(std::move(stops), include);
  Matched out;
  for (const std::string& piece : pieces) {
    auto result = matcher.push(piece);
    out.shown += result.text;
    if (result.stop) out.stop = result.stop;
  }
  if (!out.stop) out.shown += matcher.flush();
  return out;
}

TEST(StopMatcherTest, FindsAStopAcrossPieces) {
  const Matched m = match({"STOP"}, {"one S", "T", "OP two"});
  EXPECT_EQ(m.shown, "one ");
  EXPECT_EQ(m.stop, "STOP");
  EXPECT_EQ(match({"STOP"}, {"one STO", "P"}, true).shown, "one STOP");
}

TEST(StopMatcherTest, HoldsOnlyWhatMayBecomeAStop) {
  StopMatcher matcher({"\n\nUser:"});
  EXPECT_EQ(matcher.push("a\n").text, "a");
  EXPECT_EQ(matcher.push("b").text, "\nb");
  EXPECT_EQ(matcher.push("\n\nUse").text, "");
  EXPECT_EQ(matcher.flush(), "\n\nUse");
}

TEST(StopMatcherTest, TheStopThatIsCompleteFirstWins) {
  EXPECT_EQ(match({"abcd", "bc"}, {"xabcd"}).stop, "bc");
  EXPECT_EQ(match({"abcd", "bc"}, {"xab", "cd"}).shown, "xa");
  EXPECT_EQ(match({"c", "abc"}, {"abc"}).stop, "abc") << "of those that end together the longest";
}

TEST(StopMatcherTest, NothingFollowsAStop) {
  StopMatcher matcher({"x"});
  EXPECT_EQ(matcher.push("axb").text, "a");
  EXPECT_EQ(matcher.push("c").text, "");
  EXPECT_EQ(matcher.flush(), "");
}

TEST(StopMatcherTest, EmptyStopsAreIgnored) { EXPECT_EQ(match({""}, {"abc"}).shown, "abc"); }

}  // namespace
}  // namespace shoal
