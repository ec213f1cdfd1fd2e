// Arrivals, traces, prompts and datasets.
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <set>

#include "absl/strings/str_split.h"
#include "base/json.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "workload/arrivals.h"
#include "loadgen/dataset.h"
#include "loadgen/http_call.h"
#include "loadgen/http_target.h"
#include "workload/trace.h"

namespace shoal {
namespace {

using ::testing::HasSubstr;

std::vector<double> gaps(const std::vector<double>& times) {
  std::vector<double> out = {times[0]};
  for (size_t i = 1; i < times.size(); ++i) out.push_back(times[i] - times[i - 1]);
  return out;
}

double variation(const std::vector<double>& values) {
  double mean = 0, squares = 0;
  for (const double v : values) mean += v / static_cast<double>(values.size());
  for (const double v : values) squares += (v - mean) * (v - mean) / static_cast<double>(values.size());
  return std::sqrt(squares) / mean;
}

TEST(Arrivals, InfiniteRateSendsAllAtOnce) {
  EXPECT_EQ(*arrival_times_s({}, 3), (std::vector<double>{0, 0, 0}));
}

TEST(Arrivals, TheRateThatWasAskedForIsOfferedWhateverTheShape) {
  for (const double shape : {0.2, 1.0, 5.0}) {
    const auto times = *arrival_times_s({.rate = 8, .burstiness = shape, .seed = 4}, 4000);
    EXPECT_NEAR(times.back(), 500, 1e-6);
    EXPECT_TRUE(std::is_sorted(times.begin(), times.end()));
    EXPECT_NEAR(variation(gaps(times)), 1 / std::sqrt(shape), 0.12 / std::sqrt(shape)) << shape;  // of a gamma distribution
  }
}

TEST(Arrivals, AnInfiniteShapeIsAClock) {
  const auto times = *arrival_times_s({.rate = 4, .burstiness = INFINITY}, 8);
  for (size_t i = 0; i < times.size(); ++i) EXPECT_NEAR(times[i], 0.25 * static_cast<double>(i + 1), 1e-9);
}

TEST(Arrivals, BurstsComeTogetherAtTheSameRate) {
  const auto times = *arrival_times_s({.rate = 10, .burst_size = 5}, 1000);
  EXPECT_EQ(std::set<double>(times.begin(), times.end()).size(), 200u);
  EXPECT_NEAR(times.back(), 100, 1e-6);
}

TEST(Arrivals, ARampEndsFasterThanItBegins) {
  for (const char* ramp : {"linear", "exponential"}) {
    const auto times = *arrival_times_s({.burstiness = INFINITY, .ramp = ramp, .ramp_start = 1, .ramp_end = 10}, 100);
    EXPECT_NEAR(times[0], 1, 1e-9) << ramp;
    EXPECT_LT(times[99] - times[98], 0.12) << ramp;
  }
}

TEST(Arrivals, SameSeedSameTimes) {
  EXPECT_EQ(*arrival_times_s({.rate = 3, .seed = 7}, 50), *arrival_times_s({.rate = 3, .seed = 7}, 50));
  EXPECT_NE(*arrival_times_s({.rate = 3, .seed = 7}, 50), *arrival_times_s({.rate = 3, .seed = 8}, 50));
}

TEST(Arrivals, NonsenseIsRefusedByFlag) {
  EXPECT_THAT(arrival_times_s({.rate = 0}, 1).status().message(), HasSubstr("--request-rate"));
  EXPECT_THAT(arrival_times_s({.rate = NAN}, 1).status().message(), HasSubstr("--request-rate"));
  EXPECT_THAT(arrival_times_s({.rate = 1, .burstiness = -1}, 1).status().message(), HasSubstr("--burstiness"));
  EXPECT_THAT(arrival_times_s({.ramp = "up"}, 1).status().message(), HasSubstr("--ramp-up-strategy"));
  EXPECT_THAT(arrival_times_s({.ramp = "linear"}, 1).status().message(), HasSubstr("--ramp-up-start-rps"));
}

TEST(Trace, EachPublishedFormatIsTold) {
  struct Case {
    const char* text;
    const char* format;
    double second_arrival_s;
    uint32_t in, out;
  };
  for (const Case& c : {
           Case{"TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.6805900,374,44\n2023-11-16 18:15:50.9951690,396,109\n", "azure", 4.314579, 374, 44},
           Case{"Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n5,ChatGPT,472,18,490,C\n45,GPT-4,1,2,3,C\n", "burstgpt", 40, 472, 18},
           Case{"Request Time,Model Name,Input Length,Output Length\r\n00:00:00.418,m8,168,416\r\n00:00:02.253,m1,438,88\r\n", "pooling", 1.835, 168, 416},
           Case{"num_prefill_tokens,num_decode_tokens,num_total_tokens,pd_ratio\n3772,54,3826,69.8\n2,3,5,0.6\n", "vidur", 0, 3772, 54},
           Case{"0,0.5,512,0\n1,1.75,512,2944\n", "spotserve", 1.25, 512, 128},
           Case{"{\"timestamp\": 27, \"input_length\": 6758, \"output_length\": 500, \"hash_ids\": [0, 14]}\n{\"timestamp\": 3027, \"input_length\": 5, \"output_length\": 5, \"hash_ids\": []}", "mooncake", 3, 6758, 500},
           Case{"{\"input_toks\": 2358, \"output_toks\": 531, \"arrival_time_ns\": 46926808}\n{\"input_toks\": 1, \"output_toks\": 1, \"arrival_time_ns\": 1046926808}\n", "lengths-jsonl", 1, 2358, 531},
           Case{"{\"type\":\"run\",\"version\":1}\n{\"type\":\"request\",\"model\":\"b\",\"arrival\":4.5,\"prompt_tokens\":7,\"output_tokens\":9}\n"
                "{\"type\":\"turn\",\"node\":2}\n{\"type\":\"request\",\"model\":\"a\",\"arrival\":1.25,\"prompt_tokens\":100,\"output_tokens\":20}\n"
                "{\"type\":\"request\",\"model\":\"a\",\"arrival\":2,\"prompt_tokens\":100,\"output_tokens\":0}\n", "shoal", 3.25, 100, 20}}) {
    const auto trace = parse_trace(c.text);
    ASSERT_TRUE(trace.ok()) << c.format << trace.status();
    EXPECT_EQ(trace->format, c.format);
    ASSERT_EQ(trace->rows.size(), 2u) << c.format;
    EXPECT_EQ(trace->rows[0].arrival_s, 0) << c.format;
    EXPECT_NEAR(trace->rows[1].arrival_s, c.second_arrival_s, 1e-5) << c.format;
    EXPECT_EQ(trace->rows[0].input_tokens, c.in) << c.format;
    EXPECT_EQ(trace->rows[0].output_tokens, c.out) << c.format;
  }
}

TEST(Trace, AFaultNamesLineAndColumn) {
  const std::string head = "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.68,374,44\n";
  EXPECT_THAT(parse_trace(head + "2023-11-16 18:15:47.00,x,1\n").status().message(), testing::AllOf(HasSubstr("line 3"), HasSubstr("ContextTokens"), HasSubstr("'x'")));
  EXPECT_THAT(parse_trace(head + "2023-11-16 18:15:47.00,-5,1\n").status().message(), HasSubstr("line 3"));
  EXPECT_THAT(parse_trace(head + "2023-11-16 18:15:47.00,99999999999,1\n").status().message(), HasSubstr("line 3"));
  EXPECT_THAT(parse_trace(head + "soon,5,1\n").status().message(), HasSubstr("TIMESTAMP"));
  EXPECT_THAT(parse_trace(head + "2023-11-16 18:15:47.00,5\n").status().message(), HasSubstr("2 columns"));
  EXPECT_THAT(parse_trace("{\"timestamp\":1,\"input_length\":2}").status().message(), HasSubstr("output_length"));
  EXPECT_THAT(parse_trace("{\"timestamp\":1").status().message(), HasSubstr("line 1"));
  EXPECT_THAT(parse_trace("a,b,c\n1,2,3\n").status().message(), HasSubstr("no known trace"));
  EXPECT_THAT(parse_trace("").status().message(), HasSubstr("no known trace"));
  EXPECT_THAT(parse_trace("num_prefill_tokens,num_decode_tokens\n").status().message(), HasSubstr("no request"));
}

TEST(Trace, ACutBeginsAtItsStartAndIsSpedUp) {
  Trace trace{.format = "azure"};
  for (int i = 0; i < 10; ++i) trace.rows.push_back({.arrival_s = static_cast<double>(i), .input_tokens = 1, .output_tokens = 1});
  const auto rows = *cut_trace(trace, {.start_s = 2, .duration_s = 5, .speedup = 2, .rows_max = 4});
  ASSERT_EQ(rows.size(), 4u);
  EXPECT_EQ(rows[0].arrival_s, 0);
  EXPECT_EQ(rows[3].arrival_s, 1.5);
  EXPECT_THAT(cut_trace(trace, {.start_s = 100}).status().message(), HasSubstr("spans 9 s"));
  EXPECT_FALSE(cut_trace(trace, {.speedup = 0}).ok());
}

TEST(Trace, EveryPublishedFileIsRead) {
  const std::filesystem::path data = std::filesystem::path(SHOAL_SHARED_DIR) / "data";
  if (!std::filesystem::exists(data)) GTEST_SKIP() << "no ../shared/data";
  const std::map<std::string, size_t> files = {{"azure_llm_2023/AzureLLMInferenceTrace_conv.csv", 19366}, {"azure_llm_2023/AzureLLMInferenceTrace_code.csv", 8819},
                                               {"mooncake_fast25/conversation_trace_first50min.jsonl", 10043}, {"mooncake_fast25/synthetic_trace.jsonl", 3993},
                                               {"vidur/arxiv_summarization_stats_llama2_tokenizer_filtered_v2.csv", 28257},
                                               {"llmservingsim/sharegpt-llama-3.1-8b-300-sps10_lengths.jsonl", 300},
                                               {"spotserve/requests/query_realAr_cv6.txt", 0}, {"pooling/arrivals/synth-16-0.1-1.0-1.0.csv", 0}};
  for (const auto& [name, rows] : files) {
    if (!std::filesystem::exists(data / name)) continue;
    const auto trace = parse_trace(*read_file((data / name).string(), 1u << 30));
    ASSERT_TRUE(trace.ok()) << name << ": " << trace.status();
    if (rows > 0) {
      EXPECT_EQ(trace->rows.size(), rows) << name;
    }
    EXPECT_GT(trace->rows.size(), 10u) << name;
  }
}

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
