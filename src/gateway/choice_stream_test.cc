#include "gateway/choice_stream.h"

#include <gtest/gtest.h>

#include "gateway/test_support.h"

namespace shoal {
namespace {

PreparedRequest prepared(std::string prompt, OutputOptions output) {
  static const ModelRef model = std::make_shared<const ModelEntry>(test::World::entry(0, "tiny"));
  PreparedRequest request;
  request.model = model;
  request.text = *test::World::load_text(*model);
  request.prompts.push_back({test::bytes_of(prompt), prompt});
  request.request.stop_ids = {test::kEos};
  request.output = std::move(output);
  return request;
}

Tokens tokens_of(std::string_view text, std::optional<FinishReason> finish = std::nullopt) {
  Tokens tokens;
  for (const TokenId id : test::bytes_of(text)) tokens.tokens.push_back({.token = id, .logprob = -1.0f});
  if (finish == FinishReason::kStop) tokens.tokens.push_back({.token = test::kEos});
  tokens.finish = finish;
  return tokens;
}

// The deltas' texts, one token at a time.
std::vector<std::string> stream(const PreparedRequest& request, std::string_view text, FinishReason finish) {
  ChoiceStream choice(request, request.prompts[0]);
  std::vector<std::string> out;
  for (const char c : text) out.push_back(choice.push(tokens_of(std::string_view(&c, 1))).text);
  Tokens last;
  if (finish == FinishReason::kStop) last.tokens.push_back({.token = test::kEos});
  last.finish = finish;
  out.push_back(choice.push(last).text);
  return out;
}

std::string joined(const std::vector<std::string>& parts) {
  std::string out;
  for (const std::string& part : parts) out += part;
  return out;
}

bool valid_utf8(const std::string& text) { return !Json::parse(Json(text).dump(-1, ' ', false, Json::error_handler_t::replace)).get<std::string>().compare(text); }

TEST(ChoiceStream, NeverSplitsACharacter) {
  const std::string text = "aé漢🐟z";
  const auto parts = stream(prepared("p", {}), text, FinishReason::kStop);
  EXPECT_EQ(joined(parts), text);
  for (const std::string& part : parts) EXPECT_TRUE(valid_utf8(part)) << part;
}

TEST(ChoiceStream, AnUnfinishedCharacterAtTheEndBecomesTheReplacementCharacter) {
  EXPECT_EQ(joined(stream(prepared("p", {}), "a\xe6\xbc", FinishReason::kLength)), "a\xef\xbf\xbd");
}

TEST(ChoiceStream, StopStringsAreCutOffAndNothingFollows) {
  const PreparedRequest request = prepared("p", {.stop = {"END"}});
  ChoiceStream choice(request, request.prompts[0]);
  ChoiceDelta delta = choice.push(tokens_of("one EN"));
  EXPECT_EQ(delta.text, "one ");
  delta = choice.push(tokens_of("D two"));
  EXPECT_EQ(delta.text, "");
  EXPECT_EQ(delta.finish, FinishReason::kStop);
  EXPECT_TRUE(choice.finished());
  EXPECT_EQ(choice.push(tokens_of("three")).text, "");
}

TEST(ChoiceStream, WhatOnlyLookedLikeAStopStringIsShown) {
  EXPECT_EQ(joined(stream(prepared("p", {.stop = {"END"}}), "EN EEND", FinishReason::kStop)), "EN E");
  EXPECT_EQ(joined(stream(prepared("p", {.stop = {"END"}}), "the EN", FinishReason::kLength)), "the EN");
}

TEST(ChoiceStream, TheStopStringIsKeptIfAskedFor) {
  EXPECT_EQ(joined(stream(prepared("p", {.stop = {"END"}, .include_stop = true}), "a END b", FinishReason::kLength)), "a END");
}

TEST(ChoiceStream, StopStringsDoNotCountBeforeMinTokens) {
  EXPECT_EQ(joined(stream(prepared("p", {.stop = {"x"}, .min_tokens = 3}), "xxxyx", FinishReason::kLength)), "xxxy");
}

TEST(ChoiceStream, TheStopTokenIsCountedButNotShown) {
  const PreparedRequest request = prepared("p", {.skip_special = false});
  ChoiceStream choice(request, request.prompts[0]);
  const ChoiceDelta delta = choice.push(tokens_of("hi", FinishReason::kStop));
  EXPECT_EQ(delta.text, "hi");
  EXPECT_EQ(choice.completion_tokens(), 3u);
}

TEST(ChoiceStream, LogprobsComeWithTheTextTheyBelongTo) {
  const PreparedRequest request = prepared("p", {.stop = {"xyz"}, .logprobs = true});
  ChoiceStream choice(request, request.prompts[0]);
  ChoiceDelta delta = choice.push(tokens_of("ax"));
  EXPECT_EQ(delta.text, "a");
  ASSERT_EQ(delta.pieces.size(), 1u);
  delta = choice.push(tokens_of("b"));
  EXPECT_EQ(delta.text, "xb");
  ASSERT_EQ(delta.pieces.size(), 2u);
  EXPECT_EQ(delta.pieces[0].token.text, "x");
  EXPECT_EQ(delta.pieces[1].text_offset, 2u);
  delta = choice.push(tokens_of("cxyz"));
  ASSERT_EQ(delta.pieces.size(), 1u);  // the stop string's tokens are not part of the answer
  EXPECT_EQ(delta.pieces[0].token.text, "c");
}

TEST(ChoiceStream, EchoPutsThePromptFirstAndCountsOffsetsFromIt) {
  const PreparedRequest request = prepared("é!", {.echo = true, .logprobs = true});
  ChoiceStream choice(request, request.prompts[0]);
  Tokens tokens = tokens_of("ab", FinishReason::kLength);
  for (const TokenId id : {0xa9, 0x21}) tokens.prompt.push_back({.token = id, .logprob = -2.0f});
  const ChoiceDelta delta = choice.push(tokens);
  EXPECT_EQ(delta.text, "é!ab");
  ASSERT_EQ(delta.pieces.size(), 5u);
  EXPECT_FALSE(delta.pieces[0].logprob.has_value());
  EXPECT_FLOAT_EQ(*delta.pieces[1].logprob, -2.0f);
  EXPECT_EQ(delta.pieces[3].text_offset, 2u);
  EXPECT_EQ(delta.pieces[4].text_offset, 3u);
}

}  // namespace
}  // namespace shoal
