#include "workload/trace.h"

#include <cmath>
#include <filesystem>
#include <map>

#include "absl/strings/str_cat.h"
#include "base/json.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace shoal {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr const char* kAzureHead = "TIMESTAMP,ContextTokens,GeneratedTokens\n";

std::string refusal(const std::string& text) {
  const auto trace = parse_trace(text);
  return trace.ok() ? "accepted" : std::string(trace.status().message());
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

TEST(Trace, RowsComeByTheirTimeWhateverTheirOrderInTheFile) {
  const auto trace = *parse_trace("0,7.5,10,0\n1,2.5,11,0\n2,2.5,12,0\n3,4,13,0\n");
  std::vector<uint32_t> prompts;
  std::vector<double> times;
  for (const TraceRow& row : trace.rows) prompts.push_back(row.input_tokens), times.push_back(row.arrival_s);
  EXPECT_THAT(prompts, ElementsAre(11, 12, 13, 10)) << "equal times keep the order of the file";
  EXPECT_THAT(times, ElementsAre(0, 0, 1.5, 5));
}

TEST(Trace, ColumnsAreFoundByNameInAnyOrderWithAnyBlanks) {
  const auto trace = parse_trace("\xef\xbb\xbfGeneratedTokens , Extra,TIMESTAMP,\tContextTokens\r\n 44 ,x, 00:00:01 , 374 \r\n\r\n5,y,00:00:03.5,6\r\n");
  ASSERT_TRUE(trace.ok()) << trace.status();
  EXPECT_EQ(trace->format, "azure");
  ASSERT_EQ(trace->rows.size(), 2u) << "an empty line is none";
  EXPECT_EQ(trace->rows[0].input_tokens, 374u);
  EXPECT_EQ(trace->rows[1].arrival_s, 2.5);
  EXPECT_EQ(trace->rows[1].output_tokens, 5u);
}

TEST(Trace, TheLastLineNeedsNoEnd) {
  EXPECT_EQ(parse_trace("num_prefill_tokens,num_decode_tokens\n1,2\n3,4")->rows.size(), 2u);
  EXPECT_EQ(parse_trace("num_prefill_tokens,num_decode_tokens\n1,2\n3,4\n\n\n")->rows.size(), 2u);
}

TEST(Trace, CountsMayBeWrittenAsFractionsThatAreWhole) {
  EXPECT_EQ(parse_trace("num_prefill_tokens,num_decode_tokens\n512.0,1e3\n")->rows[0].output_tokens, 1000u);
  EXPECT_THAT(refusal("num_prefill_tokens,num_decode_tokens\n512.5,1\n"), HasSubstr("num_prefill_tokens"));
  EXPECT_THAT(refusal("num_prefill_tokens,num_decode_tokens\n,1\n"), HasSubstr("''"));
  EXPECT_THAT(refusal("num_prefill_tokens,num_decode_tokens\nnan,1\n"), HasSubstr("not a number of tokens"));
  EXPECT_THAT(refusal("num_prefill_tokens,num_decode_tokens\ninf,1\n"), HasSubstr("not a number of tokens"));
}

TEST(Trace, TheLimitOfARequestIsTaken) {
  const std::string head = "num_prefill_tokens,num_decode_tokens\n";
  EXPECT_EQ(parse_trace(absl::StrCat(head, kTraceTokensMax, ",1\n"))->rows[0].input_tokens, kTraceTokensMax);
  EXPECT_THAT(refusal(absl::StrCat(head, kTraceTokensMax + 1, ",1\n")), HasSubstr("(0 to 4000000)"));
  EXPECT_THAT(refusal(absl::StrCat(R"({"timestamp":0,"output_length":1,"input_length":)", kTraceTokensMax + 1, "}")), HasSubstr("input_length"));
}

TEST(Trace, WhatAnsweredNothingIsLeftOut) {
  const auto burst = *parse_trace("Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n5,ChatGPT,472,0,472,C\n45,GPT-4,1,2,3,C\n");
  ASSERT_EQ(burst.rows.size(), 1u);
  EXPECT_EQ(burst.rows[0].model, "GPT-4");
  EXPECT_EQ(burst.rows[0].arrival_s, 0) << "times count from the first that is left";
  EXPECT_THAT(refusal("num_prefill_tokens,num_decode_tokens\n5,0\n"), HasSubstr("no request"));
}

TEST(Trace, ModelsAndSharedBlocksAreKept) {
  const auto pooled = *parse_trace("Request Time,Model Name,Input Length,Output Length\n00:00:01,m 8,1,1\n");
  EXPECT_EQ(pooled.rows[0].model, "m 8");
  const auto mooncake = *parse_trace(R"({"timestamp":0,"input_length":1,"output_length":1,"hash_ids":[3,18446744073709551615]})");
  EXPECT_THAT(mooncake.rows[0].block_ids, ElementsAre(3u, UINT64_MAX));
  EXPECT_TRUE(parse_trace(R"({"timestamp":0,"input_length":1,"output_length":1})")->rows[0].block_ids.empty());
}

TEST(Trace, OnlyVidurHasNoTimes) {
  EXPECT_FALSE(parse_trace("num_prefill_tokens,num_decode_tokens\n1,2\n")->has_arrivals);
  EXPECT_TRUE(parse_trace("0,0.5,512,0\n")->has_arrivals);
}

TEST(Trace, ATimeThatIsNoneIsNamed) {
  EXPECT_THAT(refusal("0,inf,512,0\n"), HasSubstr("arrival_s"));
  EXPECT_THAT(refusal("0,nan,512,0\n"), HasSubstr("arrival_s"));
  EXPECT_THAT(refusal(std::string(kAzureHead) + "2023-13-40 18:15:46,1,1\n"), HasSubstr("such as 2023-11-16"));
  EXPECT_THAT(refusal(std::string(kAzureHead) + std::string(5000, '9') + ",1,1\n"), testing::Not(HasSubstr(std::string(41, '9')))) << "long cells are cut";
  const auto zoned = parse_trace(std::string(kAzureHead) + "2024-05-10 00:00:00.009930+00:00,1,1\n2024-05-10 00:00:01.009930+00:00,1,1\n");
  ASSERT_TRUE(zoned.ok()) << zoned.status();
  EXPECT_NEAR(zoned->rows[1].arrival_s, 1, 1e-6);
}

TEST(Trace, FaultsOfJsonLinesNameTheLineAndTheKey) {
  const std::string good = R"({"timestamp":1,"input_length":2,"output_length":3,"hash_ids":[1]})" "\n";
  EXPECT_THAT(refusal(good + "[]"), testing::AllOf(HasSubstr("line 2"), HasSubstr("not a JSON object")));
  EXPECT_THAT(refusal(good + R"({"timestamp":-1,"input_length":2,"output_length":3})"), testing::AllOf(HasSubstr("line 2"), HasSubstr("timestamp")));
  EXPECT_THAT(refusal(good + R"({"timestamp":1,"input_length":"2","output_length":3})"), HasSubstr("input_length"));
  EXPECT_THAT(refusal(good + R"({"timestamp":1,"input_length":2,"output_length":3,"hash_ids":7})"), HasSubstr("hash_ids"));
  EXPECT_THAT(refusal(good + R"({"timestamp":1,"input_length":2,"output_length":3,"hash_ids":[-1]})"), HasSubstr("hash_ids"));
  EXPECT_THAT(refusal(good + R"({"input_toks":1,"output_toks":1,"arrival_time_ns":0})"), HasSubstr("has no 'timestamp'")) << "a file has one format";
  EXPECT_THAT(refusal(R"({"prompt":"hello"})"), HasSubstr("neither 'timestamp'"));
  EXPECT_THAT(refusal("{\"type\":\"run\"}\n{\"type\":\"request\",\"arrival\":1,\"prompt_tokens\":4}"), HasSubstr("output_tokens"));
}

TEST(Trace, ARowHasAsManyCellsAsTheHeader) {
  EXPECT_THAT(refusal(std::string(kAzureHead) + "00:00:01,1,1,1\n"), HasSubstr("has 4 columns, the first line has 3"));
  EXPECT_THAT(refusal("0,0.5,512,0\n1,0.5\n"), HasSubstr("line 2"));
}

TEST(TraceCut, TakesHalfOpenStretchesOfTime) {
  Trace trace{.format = "azure"};
  for (int i = 0; i < 5; ++i) trace.rows.push_back({.arrival_s = static_cast<double>(i), .input_tokens = static_cast<uint32_t>(i), .output_tokens = 1});
  const auto rows = *cut_trace(trace, {.start_s = 1, .duration_s = 2});
  ASSERT_EQ(rows.size(), 2u) << "seconds 1 and 2, not 3";
  EXPECT_EQ(rows[0].input_tokens, 1u);
  EXPECT_EQ(rows[1].arrival_s, 1);
  EXPECT_EQ(cut_trace(trace, {})->size(), 5u);
  EXPECT_EQ(cut_trace(trace, {.rows_max = 99})->size(), 5u);
  EXPECT_EQ((*cut_trace(trace, {.start_s = 3.5, .speedup = 0.5}))[0].arrival_s, 1) << "half a second of the trace, at half the speed";
}

TEST(TraceCut, NonsenseIsRefusedByFlag) {
  const Trace trace{.format = "azure", .rows = {{.arrival_s = 0, .input_tokens = 1, .output_tokens = 1}}};
  for (const double speedup : {0.0, -1.0, static_cast<double>(INFINITY), static_cast<double>(NAN)}) {
    EXPECT_THAT(cut_trace(trace, {.speedup = speedup}).status().message(), HasSubstr("--trace-speedup")) << speedup;
  }
  for (const double time : {-1.0, static_cast<double>(NAN)}) {
    EXPECT_THAT(cut_trace(trace, {.start_s = time}).status().message(), HasSubstr("--trace-start")) << time;
    EXPECT_THAT(cut_trace(trace, {.duration_s = time}).status().message(), HasSubstr("--trace-duration")) << time;
  }
}

}  // namespace
}  // namespace shoal
