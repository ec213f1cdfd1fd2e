// Streams as they come off the wire, and what a run makes of them.
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "loadgen/answer_reader.h"
#include "loadgen/html_page.h"
#include "loadgen/report.h"

namespace shoal {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<std::string> events(const std::string& bytes, size_t piece) {
  SseParser parser;
  std::vector<std::string> out;
  for (size_t at = 0; at < bytes.size(); at += piece) {
    EXPECT_TRUE(parser.feed(std::string_view(bytes).substr(at, piece), [&](std::string_view data) { out.emplace_back(data); }));
  }
  return out;
}

TEST(Sse, EventsAreTheSameInAnyPieces) {
  const std::string bytes = ": ping\n\ndata: one\n\nevent: x\ndata:two\r\ndata: lines\r\n\r\nid: 7\n\ndata: a\rdata: b\r\rdata\n\ndata: unfinished\n";
  for (size_t piece = 1; piece <= bytes.size(); ++piece) {
    EXPECT_THAT(events(bytes, piece), ElementsAre("one", "two\nlines", "a\nb", "")) << piece;
  }
}

TEST(Sse, ALineWithoutEndIsNotKeptForEver) {
  SseParser parser(100);
  const auto ignore = [](std::string_view) {};
  EXPECT_TRUE(parser.feed("data: " + std::string(90, 'x'), ignore));
  EXPECT_FALSE(parser.feed(std::string(90, 'x'), ignore));
  EXPECT_FALSE(parser.feed("\n\ndata: more\n\n", ignore));
}

TEST(Chunk, TextReasoningAndToolCallsAreTokens) {
  EXPECT_TRUE(read_chunk(R"({"choices":[{"delta":{"content":"4"},"finish_reason":null}]})", false)->has_token);
  EXPECT_TRUE(read_chunk(R"({"choices":[{"delta":{"reasoning_content":"hm"}}]})", false)->has_token);
  EXPECT_TRUE(read_chunk(R"({"choices":[{"delta":{"tool_calls":[{"index":0}]}}]})", false)->has_token);
  EXPECT_TRUE(read_chunk(R"({"choices":[{"text":" a"}]})", false)->has_token);
  EXPECT_TRUE(read_chunk(R"({"choices":[{"text":"","finish_reason":null}]})", false)->has_token);
}

TEST(Chunk, RolesEndsAndUsageAreNotTokens) {
  EXPECT_FALSE(read_chunk(R"({"choices":[{"delta":{"role":"assistant","content":""}}]})", false)->has_token);
  EXPECT_FALSE(read_chunk(R"({"choices":[{"delta":{"content":null,"tool_calls":[]}}]})", false)->has_token);
  const auto end = *read_chunk(R"({"choices":[{"text":"","finish_reason":"stop"}]})", false);
  EXPECT_FALSE(end.has_token);
  EXPECT_EQ(end.finish_reason, "stop");
  const auto usage = *read_chunk(R"({"choices":[],"usage":{"prompt_tokens":5,"completion_tokens":7,"details":{"x":[1,2]}}})", false);
  EXPECT_EQ(usage.prompt_tokens, 5u);
  EXPECT_EQ(usage.completion_tokens, 7u);
}

TEST(Chunk, TextIsUnescapedWhenItIsWanted) {
  EXPECT_EQ(read_chunk(R"({"choices":[{"delta":{"content":"\"\u00e9\n\ud83d\ude00\\"}}]})", true)->text, "\"é\n😀\\");
  EXPECT_EQ(read_chunk(R"({"choices":[{"delta":{"content":"x"}}]})", false)->text, "");
}

TEST(Chunk, ErrorsAreFoundInEveryShape) {
  EXPECT_EQ(read_chunk(R"({"error":{"message":"no \"room\"","type":"x"}})", false)->error, "no \"room\"");
  EXPECT_EQ(read_chunk(R"({"error":"plain"})", false)->error, "\"plain\"");
  EXPECT_EQ(read_chunk(R"({"error":null,"choices":[]})", false)->error, std::nullopt);
}

TEST(Chunk, WhatIsNoJsonIsRefusedAndNothingIsReadPastItsEnd) {
  const std::string whole = R"({"choices":[{"index":0,"delta":{"content":"a\"b","x":[1,{"y":null}]}}],"usage":{"prompt_tokens":3}})";
  ASSERT_TRUE(read_chunk(whole, true).ok());
  for (size_t length = 0; length < whole.size(); ++length) EXPECT_FALSE(read_chunk(whole.substr(0, length), true).ok()) << length;
  EXPECT_FALSE(read_chunk(whole + "x", true).ok());
  EXPECT_FALSE(read_chunk("[]", true).ok());
  EXPECT_FALSE(read_chunk("{\"a\":" + std::string(100, '[') + std::string(100, ']') + "}", true).ok());
  EXPECT_FALSE(read_chunk("\"\\", true).ok());
}

constexpr char kToken[] = "data: {\"choices\":[{\"text\":\"a\"}]}\n\n";
constexpr char kEnd[] = "data: {\"choices\":[{\"text\":\"\",\"finish_reason\":\"length\"}]}\n\n";
constexpr char kUsage[] = "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":11,\"completion_tokens\":6}}\n\n";
constexpr char kDone[] = "data: [DONE]\n\n";

struct Answer {
  RequestRecord record{.start_s = 0, .input_tokens = 10};
  AnswerReader reader{record, true};
  Answer(int status, bool stream) { reader.head(status, stream); }
};

TEST(AnswerReader, TimesAndCountsOfAStream) {
  Answer a(200, true);
  EXPECT_TRUE(a.reader.body(": waiting\n\n", 0.1));
  EXPECT_TRUE(a.reader.body(kToken, 0.5));
  EXPECT_TRUE(a.reader.body(kToken, 0.75));
  EXPECT_TRUE(a.reader.body(std::string(kToken) + kEnd + kUsage + kDone, 1.5));
  a.reader.end("", 1.6);
  EXPECT_TRUE(a.record.ok()) << a.record.failure;
  EXPECT_EQ(a.record.ttft_s, 0.5);
  EXPECT_THAT(a.record.gaps_s, ElementsAre(0.25f, 0.75f));
  EXPECT_EQ(a.record.latency_s, 1.5);
  EXPECT_EQ(a.record.input_tokens, 11u);
  EXPECT_EQ(a.record.output_tokens, 6u);
  EXPECT_EQ(a.record.tpot_s(), 0.2);
  EXPECT_EQ(a.record.text, "aaa");
  EXPECT_EQ(a.record.finish_reason, "length");
}

TEST(AnswerReader, WithoutUsageEventsAreCounted) {
  Answer a(200, true);
  a.reader.body(std::string(kToken) + kToken + kEnd, 1);
  a.reader.end("", 1);
  EXPECT_TRUE(a.record.ok() && !a.record.has_usage);
  EXPECT_EQ(a.record.output_tokens, 2u);
  EXPECT_EQ(a.record.input_tokens, 10u);
}

TEST(AnswerReader, TokensWithoutTextAreAnAnswerThatIsSeenAtItsEnd) {
  Answer a(200, true);
  a.reader.body(std::string(kEnd) + kUsage + kDone, 2);
  a.reader.end("", 2);
  EXPECT_TRUE(a.record.ok());
  EXPECT_EQ(a.record.ttft_s, 2);
  EXPECT_EQ(a.record.output_tokens, 6u);
}

TEST(AnswerReader, EveryFailureHasItsKind) {
  const auto kind = [](int status, bool stream, const std::string& body, const std::string& problem) {
    Answer a(status, stream);
    a.reader.body(body, 1);
    a.reader.end(problem, 2);
    return a.record.failure + "|" + a.record.message;
  };
  EXPECT_EQ(kind(429, false, R"({"error":{"message":"slow down"}})", ""), "http_429|slow down");
  EXPECT_EQ(kind(502, false, "<html>", ""), "http_502|<html>");
  EXPECT_EQ(kind(200, true, std::string(kToken) + "data: {\"error\":{\"message\":\"lost\"}}\n\n", ""), "error_event|lost");
  EXPECT_EQ(kind(200, true, kToken, ""), "truncated|the stream ended without [DONE]");
  EXPECT_EQ(kind(200, true, kToken, "connection reset"), "truncated|connection reset");
  EXPECT_THAT(kind(200, true, "data: {oops\n\n", ""), HasSubstr("protocol|"));
  EXPECT_THAT(kind(200, true, kDone, ""), HasSubstr("empty|"));
  EXPECT_THAT(kind(200, false, "hello", ""), HasSubstr("protocol|"));
  EXPECT_THAT(kind(0, false, "", "end of stream"), HasSubstr("protocol|"));
}

TEST(AnswerReader, AnAnswerThatIsNotStreamedIsRead) {
  Answer a(200, false);
  a.reader.body(R"({"choices":[{"message":{"content":"hi"},"finish_reason":"stop"}],)", 1);
  a.reader.body(R"("usage":{"prompt_tokens":3,"completion_tokens":2}})", 2);
  a.reader.end("", 2);
  EXPECT_TRUE(a.record.ok()) << a.record.message;
  EXPECT_EQ(a.record.output_tokens, 2u);
  EXPECT_EQ(a.record.text, "hi");
}

TEST(Summary, PercentilesAreThoseOfNumPy) {
  const Distribution d = describe({4, 1, 3, 2}, {25, 50, 99});
  EXPECT_DOUBLE_EQ(d.mean, 2.5);
  EXPECT_DOUBLE_EQ(d.median, 2.5);
  EXPECT_NEAR(d.deviation, 1.118033988749895, 1e-15);          // numpy.std([1,2,3,4])
  EXPECT_DOUBLE_EQ(d.percentiles[0].value, 1.75);
  EXPECT_NEAR(d.percentiles[2].value, 3.97, 1e-12);
  EXPECT_EQ(describe({}, {99}).percentiles[0].value, 0);
}

TEST(Summary, GoodputIsReadAndMet) {
  const auto goodput = *parse_goodput({"ttft:500", "e2el:2000"});
  RequestRecord record{.start_s = 0, .ttft_s = 0.4, .latency_s = 1.9, .output_tokens = 10};
  EXPECT_TRUE(goodput.met(record));
  record.ttft_s = 0.6;
  EXPECT_FALSE(goodput.met(record));
  record.ttft_s = 0.1;
  record.failure = "timeout";
  EXPECT_FALSE(goodput.met(record));
  for (const char* bad : {"ttft", "ttft:", "ttft:x", "ttft:-1", "itl:5", ":5", ""}) EXPECT_FALSE(parse_goodput({bad}).ok()) << bad;
}

RunResult small_run() {
  RunResult run{.duration_s = 4};
  run.records.push_back({.start_s = 0, .ttft_s = 1, .latency_s = 3, .gaps_s = {1, 1}, .input_tokens = 10, .output_tokens = 3, .has_usage = true, .model = "m"});
  run.records.push_back({.start_s = 1, .ttft_s = 0.5, .latency_s = 1, .gaps_s = {0.5}, .input_tokens = 20, .output_tokens = 2, .has_usage = true, .model = "m"});
  run.records.push_back({.start_s = 2, .latency_s = 2, .input_tokens = 5, .model = "m", .failure = "http_503", .message = "<full>, \"busy\""});
  run.records.push_back({.due_s = 9, .model = "m"});
  return run;
}

TEST(Summary, ThroughputCountsWhatSucceeded) {
  const Summary s = summarize(small_run(), *parse_goodput({"ttft:600"}), {50, 99});
  EXPECT_EQ(s.completed, 2u);
  EXPECT_EQ(s.failed, 1u);
  EXPECT_EQ(s.unsent, 1u);
  EXPECT_EQ(s.request_throughput, 0.5);
  EXPECT_EQ(*s.request_goodput, 0.25);
  EXPECT_EQ(s.output_throughput, 1.25);
  EXPECT_EQ(s.total_token_throughput, 8.75);
  EXPECT_EQ(s.peak_concurrency, 2u);
  EXPECT_THAT(s.failures, ElementsAre(testing::Pair("http_503", 1u)));
  EXPECT_EQ(s.metrics[0].second.mean, 750);
  EXPECT_EQ(s.metrics[1].second.mean, 750);   // (1000 + 500) / 2
  EXPECT_EQ(s.metrics[2].first.values_ms.size(), 3u);
}

TEST(Summary, WhoeverWasCutOffByTheInterruptionDidNotFail) {
  RunResult run = small_run();
  run.interrupted = true;
  run.records.push_back({.start_s = 3, .latency_s = 1, .model = "m", .failure = "interrupted", .message = "the run was stopped"});
  const Summary s = summarize(run, {}, {99});
  EXPECT_EQ(s.interrupted, 1u);
  EXPECT_EQ(s.failed, 1u);
  EXPECT_THAT(s.failures, ElementsAre(testing::Pair("http_503", 1u)));
  EXPECT_THAT(console_report({}, s), HasSubstr("Requests ended by the interruption:      1"));
  EXPECT_EQ(console_report({}, s).find("interrupted, for example"), std::string::npos);
  EXPECT_EQ(json_report({}, s, run, false)["ended_by_interruption"], 1);
}

TEST(Summary, TheTimeLineHoldsEveryToken) {
  const TimeLine line = time_line(small_run(), 1);
  EXPECT_THAT(line.tokens, ElementsAre(0, 2, 2, 1, 0));
}

TEST(Report, JsonHasTheNamesOfVllm) {
  const RunResult run = small_run();
  const Summary s = summarize(run, {}, {99});
  const auto json = json_report({.date = "d", .model = "m", .num_prompts = 4, .request_rate = INFINITY}, s, run, true);
  for (const char* key : {"date", "backend", "model_id", "tokenizer_id", "num_prompts", "request_rate", "burstiness", "max_concurrency", "duration", "completed",
                          "failed", "total_input_tokens", "total_output_tokens", "request_throughput", "request_goodput", "output_throughput",
                          "total_token_throughput", "input_lens", "output_lens", "ttfts", "itls", "generated_texts", "errors"}) {
    EXPECT_TRUE(json.contains(key)) << key;
  }
  for (const char* metric : {"ttft", "tpot", "itl", "e2el"}) {
    for (const char* figure : {"mean_", "median_", "std_", "p99_"}) EXPECT_TRUE(json.contains(std::string(figure) + metric + "_ms")) << figure << metric;
  }
  EXPECT_EQ(json["request_rate"], "inf");
  EXPECT_EQ(json["errors"][2], "http_503: <full>, \"busy\"");
  EXPECT_FALSE(json_report({}, s, run, false).contains("ttfts"));
}

TEST(Report, CsvHasOneLinePerRequestWhateverMessagesHold) {
  const std::string csv = csv_report({}, small_run());
  EXPECT_EQ(std::count(csv.begin(), csv.end(), '\n'), 5);
  EXPECT_THAT(csv, HasSubstr("\"<full>, \"\"busy\"\"\""));
  EXPECT_THAT(csv, HasSubstr("not_sent"));
}

OrderedJson data_of(const std::string& page) {
  constexpr std::string_view kBegin = "id=\"report\">";
  const size_t from = page.find(kBegin) + kBegin.size();
  return *parse_ordered_json(page.substr(from, page.find("</script>", from) - from));
}

TEST(Report, ThePageEscapesWhatServersSayAndFetchesNothing) {
  const RunResult run = small_run();
  const std::string page = html_report({.date = "d", .model = "</script>m"}, summarize(run, {}, {99}), run);
  EXPECT_THAT(page, HasSubstr("\\u003cfull>"));
  EXPECT_EQ(page.find("</script>m"), std::string::npos);
  EXPECT_EQ(page.find("src="), std::string::npos);
  EXPECT_EQ(page.find("href="), std::string::npos);
  const OrderedJson data = data_of(page);
  EXPECT_EQ(data["title"], "Load test of </script>m");
  EXPECT_EQ(data.dump().find("null"), std::string::npos);
}

const OrderedJson* chart_of(const OrderedJson& data, std::string_view title) {
  for (const OrderedJson& block : data["blocks"]) {
    if (!block.contains("charts")) continue;
    for (const OrderedJson& chart : block["charts"]) {
      if (std::string(chart["title"]).starts_with(title)) return &chart;
    }
  }
  return nullptr;
}

TEST(Report, ThePageIsForPeople) {
  RunResult run = small_run();
  run.interrupted = true;
  run.records.push_back({.start_s = 3, .latency_s = 1, .model = "m", .failure = "interrupted"});
  const OrderedJson data = data_of(html_report({.date = "20261124-140300", .day = "24 Nov 2026 14:03 UTC", .model = "m"}, summarize(run, {}, {99}), run));
  EXPECT_THAT(data["lede"].dump(), HasSubstr("24 Nov 2026 14:03 UTC"));
  EXPECT_EQ(data.dump().find("20261124"), std::string::npos);
  run.records[1].model = "other";
  EXPECT_EQ(data_of(html_report({.model = "m"}, summarize(run, {}, {99}), run))["title"], "Load test of 2 models");
  const OrderedJson* waterfall = chart_of(data, "Requests, from sending");
  ASSERT_NE(waterfall, nullptr);
  std::vector<std::string> named;
  for (const OrderedJson& series : (*waterfall)["series"]) named.push_back(absl::StrCat(std::string(series["name"]), " ", series["points"].size()));
  EXPECT_THAT(named, ElementsAre("waiting for the first token 2", "streaming 2", "failed 1", "ended by the interruption 1"));
}

TEST(Report, NoRequestIsTooShortToBeSeenInFlight) {
  RunResult run{.duration_s = 1000};
  for (int i = 0; i < 20'000; ++i) run.records.push_back({.start_s = i * 0.05, .latency_s = 0.0001, .output_tokens = 1});
  run.records.push_back({.start_s = 500.00005, .latency_s = 0.00001, .output_tokens = 1});
  const auto steps = in_flight_steps(run.records);
  EXPECT_EQ(std::max_element(steps.begin(), steps.end(), [](const auto& a, const auto& b) { return a.second < b.second; })->second, 2u);
  EXPECT_EQ(steps.back().second, 0u);
  const OrderedJson data = data_of(html_report({}, summarize(run, {}, {99}), run));
  const OrderedJson points = (*chart_of(data, "Requests in flight"))["series"][0]["points"];
  EXPECT_LT(points.size(), 5000u);
  double most = 0;
  for (const OrderedJson& point : points) most = std::max(most, point[1].get<double>());
  EXPECT_EQ(most, 2);
}

TEST(Report, ARunWithoutAnAnswerStillHasItsReports) {
  RunResult run;
  run.records.push_back({.start_s = 0, .failure = "connect", .message = "refused"});
  const Summary s = summarize(run, {}, {99});
  EXPECT_THAT(console_report({}, s), HasSubstr("connect, for example: refused"));
  EXPECT_THAT(html_report({}, s, run), HasSubstr("</html>"));
  EXPECT_EQ(html_report({}, s, run).find("inf\""), std::string::npos);
}

TEST(HtmlPage, FiguresAreShortAndSharesArePercent) {
  EXPECT_EQ(number(1234567), "1\u202f234\u202f567");
  EXPECT_EQ(number(12.345), "12.3");
  EXPECT_EQ(number(0.25), "0.25");
  EXPECT_EQ(percent(0.973), "97.3\u00a0%");
}

TEST(HtmlPage, AThinnedStaircaseKeepsItsPeaksAndItsEnd) {
  Points steps;
  for (int i = 0; i < 10'000; ++i) steps.emplace_back(i, i == 7777 ? 9 : i % 2);
  const Points few = thinned(steps, 9999, 100);
  EXPECT_LE(few.size(), 110u);
  EXPECT_THAT(few, testing::Contains(std::pair(7777.0, 9.0)));
  EXPECT_EQ(few.back(), steps.back());
  EXPECT_EQ(thinned(steps, 9999, 10'000), steps);
}

}  // namespace
}  // namespace shoal
