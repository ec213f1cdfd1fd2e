// Prompts and datasets.
#include <algorithm>
#include <filesystem>

#include "absl/strings/str_split.h"
#include "base/json.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "loadgen/dataset.h"
#include "loadgen/http_call.h"
#include "loadgen/http_target.h"
#include "workload/trace.h"

namespace shoal {
namespace {

using ::testing::HasSubstr;

size_t words_in(const std::string& text) { return std::vector<std::string>(absl::StrSplit(text, ' ', absl::SkipEmpty())).size(); }

TEST(WordBook, ApproximateTextHasAWordPerTokenAndIsAFunctionOfItsSeed) {
  const WordBook words = WordBook::approximate();
  EXPECT_EQ(words_in(words.text(1, 100)), 100u);
  EXPECT_EQ(words.text(1, 100), words.text(1, 100));
  EXPECT_NE(words.text(1, 100), words.text(2, 100));
}

TEST(WordBook, MeasuredTextHasTheTokensAskedFor) {
  // A tokenizer that costs a token per two letters, and one for the beginning of the text.
  const CountTokens count = [](std::string_view text) -> StatusOr<uint32_t> {
    uint32_t tokens = 1;
    for (const std::string& word : std::vector<std::string>(absl::StrSplit(std::string(text), ' ', absl::SkipEmpty()))) tokens += static_cast<uint32_t>(word.size() + 1) / 2;
    return tokens;
  };
  const auto words = WordBook::measure(count);
  ASSERT_TRUE(words.ok()) << words.status();
  EXPECT_EQ(words->overhead(), 1u);
  for (const uint32_t tokens : {1u, 7u, 100u, 1001u}) EXPECT_EQ(*count(words->text(5, tokens)) - words->overhead(), tokens);
}

TEST(WordBook, ATokenizerThatFailsOrCountsNothingIsAnError) {
  EXPECT_FALSE(WordBook::measure([](std::string_view) -> StatusOr<uint32_t> { return unavailable("gone"); }).ok());
  EXPECT_FALSE(WordBook::measure([](std::string_view) -> StatusOr<uint32_t> { return 1; }).ok());
}

const CountTokens kByWords = [](std::string_view text) -> StatusOr<uint32_t> { return static_cast<uint32_t>(words_in(std::string(text))); };

TEST(Dataset, RandomLengthsStayWithinTheirRangeAndShareThePrefix) {
  DatasetSpec spec{.num_prompts = 300, .seed = 1, .input_len = 100, .output_len = 10, .prefix_len = 20, .range_ratio = 0.5};
  const auto requests = *make_requests(spec, "", kByWords);
  ASSERT_EQ(requests.size(), 300u);
  const WordBook words = WordBook::approximate();
  const std::string prefix = write_prompt({.runs = {requests[0].prompt.runs[0]}}, words);
  std::set<uint32_t> lengths;
  for (const LoadRequest& request : requests) {
    const std::string text = write_prompt(request.prompt, words);
    EXPECT_TRUE(text.starts_with(prefix));
    EXPECT_EQ(words_in(text), request.input_tokens);
    EXPECT_GE(request.input_tokens, 70u);
    EXPECT_LE(request.input_tokens, 170u);
    EXPECT_GE(request.output_tokens, 5u);
    EXPECT_LE(request.output_tokens, 15u);
    lengths.insert(request.input_tokens);
  }
  EXPECT_GT(lengths.size(), 50u);
  spec.range_ratio = 1;
  EXPECT_FALSE(make_requests(spec, "", kByWords).ok());
}

TEST(Dataset, PrefixesAreUsedEquallyOften) {
  const auto requests = *make_requests({.name = "prefix_repetition", .num_prompts = 40, .num_prefixes = 4}, "", kByWords);
  std::map<uint64_t, int> uses;
  for (const LoadRequest& request : requests) ++uses[request.prompt.runs[0].seed];
  EXPECT_THAT(uses, testing::Each(testing::Pair(testing::_, 10)));
  EXPECT_EQ(uses.size(), 4u);
}

TEST(Dataset, TraceBlocksWithTheSameIdAreTheSameText) {
  const std::string text = "{\"timestamp\":0,\"input_length\":700,\"output_length\":5,\"hash_ids\":[3,4]}\n"
                           "{\"timestamp\":1000,\"input_length\":1100,\"output_length\":6,\"hash_ids\":[3,9,10]}\n";
  const auto requests = *make_requests({.name = "trace"}, text, kByWords);
  const WordBook words = WordBook::approximate();
  const std::string first = write_prompt(requests[0].prompt, words), second = write_prompt(requests[1].prompt, words);
  EXPECT_EQ(words_in(first), 700u);
  EXPECT_EQ(words_in(second), 1100u);
  const std::string shared = words.text(requests[0].prompt.runs[0].seed, kTraceBlockTokens);
  EXPECT_TRUE(first.starts_with(shared) && second.starts_with(shared));
  EXPECT_EQ(requests[1].due_s, 1);
  EXPECT_EQ(requests[1].output_tokens, 6u);
}

TEST(Dataset, ShareGptTakesTheFirstTwoTurns) {
  const std::string text = R"([{"conversations":[{"from":"human","value":"one two three four five"},{"from":"gpt","value":"a b c d e f"}]},
                               {"conversations":[{"from":"human","value":"alone"}]}])";
  const auto requests = *make_requests({.name = "sharegpt"}, text, kByWords);
  ASSERT_EQ(requests.size(), 1u);
  EXPECT_EQ(requests[0].prompt.literal, "one two three four five");
  EXPECT_EQ(requests[0].output_tokens, 6u);
  EXPECT_THAT(make_requests({.name = "sharegpt"}, R"([{"x":1}])", kByWords).status().message(), HasSubstr("item 0"));
  EXPECT_FALSE(make_requests({.name = "sharegpt"}, "{}", kByWords).ok());
}

TEST(Dataset, CustomLinesAreRepeatedUntilThereAreEnough) {
  const auto requests = *make_requests({.name = "custom", .num_prompts = 3}, "{\"prompt\":\"a b\"}\n\n{\"prompt\":\"c\",\"output_tokens\":9}\n", kByWords);
  ASSERT_EQ(requests.size(), 3u);
  EXPECT_EQ(requests[1].output_tokens, 9u);
  EXPECT_EQ(requests[2].prompt.literal, "a b");
  EXPECT_THAT(make_requests({.name = "custom"}, "{\"prompt\":\"a\"}\n{\"text\":\"b\"}", kByWords).status().message(), HasSubstr("line 2"));
}

TEST(HttpTarget, UrlsAreTakenApart) {
  const auto plain = *parse_url("http://host:8000/prefix/");
  EXPECT_EQ(plain.host + "|" + plain.port + "|" + plain.base_path, "host|8000|/prefix");
  EXPECT_EQ(plain.host_header(), "host:8000");
  EXPECT_EQ(parse_url("https://host")->port, "443");
  EXPECT_EQ(parse_url("https://host")->host_header(), "host");
  EXPECT_EQ(parse_url("[::1]:80")->host, "::1");
  EXPECT_EQ(parse_url("http://[::1]:81")->host_header(), "[::1]:81");
  EXPECT_EQ(parse_url("unix:/run/x.sock")->unix_socket, "/run/x.sock");
  for (const char* bad : {"", "ftp://h", "http://", "http://h:0", "http://h:99999", "http://h:x", "http://h/?q", "http://[::1", "http://a b", "unix:"}) {
    EXPECT_FALSE(parse_url(bad).ok()) << bad;
  }
}

TEST(HttpTarget, ABaseUrlWithV1MeansTheServerThatV1IsOn) {
  for (const char* url : {"http://h/api", "http://h/api/v1", "http://h/api/v1/"}) {
    const HttpTarget target = *parse_url(url);
    EXPECT_EQ(target.base_path, "/api") << url;
    EXPECT_EQ(target.shown(), "http://h/api") << url;
    EXPECT_EQ(http_request(target, "GET", "/tokenize", {}, "").substr(0, 18), "GET /api/tokenize ") << url;
    EXPECT_EQ(http_request(target, "GET", "/v1/models", {}, "").substr(0, 19), "GET /api/v1/models ") << url;
  }
  EXPECT_TRUE(parse_url("http://h/v1")->names_v1);
  EXPECT_FALSE(parse_url("http://h/apiv1")->names_v1);
}

}  // namespace
}  // namespace shoal
