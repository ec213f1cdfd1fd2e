#include "apps/bench_flags.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>

#include "CLI/CLI.hpp"

namespace shoal {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
using testing::Pair;

class BenchFlagsTest : public testing::Test {
 protected:
  void SetUp() override { unsetenv("OPENAI_API_KEY"); }

  // A command line of `bench`; its flags are in flags_, settled.
  Status give(std::vector<std::string> words) {
    app_ = std::make_unique<CLI::App>("test");
    flags_ = {};
    add_bench_flags(*app_, flags_);
    std::reverse(words.begin(), words.end());  // as CLI11 wants them
    try {
      app_->parse(words);
    } catch (const CLI::ParseError& error) {
      return invalid_argument("parser: ", error.what());
    }
    return settle(*app_, flags_);
  }
  std::string refusal(std::vector<std::string> words) {
    const Status status = give(std::move(words));
    return status.ok() ? "accepted" : std::string(status.message());
  }

  std::unique_ptr<CLI::App> app_;
  BenchFlags flags_;
};

TEST_F(BenchFlagsTest, WithoutFlagsTheServerOfThisMachineIsAskedForCompletions) {
  ASSERT_TRUE(give({}).ok());
  EXPECT_EQ(flags_.target.host, "127.0.0.1");
  EXPECT_EQ(flags_.load.path, "/v1/completions");
  EXPECT_FALSE(flags_.save_result);
  EXPECT_THAT(flags_.ranks, ElementsAre(99));
  EXPECT_EQ(flags_.load.extra_fields, ",\"temperature\":0");
  EXPECT_TRUE(flags_.load.headers.empty());
}

TEST_F(BenchFlagsTest, TheBackendChoosesTheEndpointUnlessItIsNamed) {
  ASSERT_TRUE(give({"--backend", "openai-chat"}).ok());
  EXPECT_EQ(flags_.load.path, "/v1/chat/completions");
  ASSERT_TRUE(give({"--backend", "openai-chat", "--endpoint", "/other"}).ok());
  EXPECT_EQ(flags_.load.path, "/other");
  EXPECT_THAT(refusal({"--endpoint", "v1/completions"}), HasSubstr("must begin with /"));
}

TEST_F(BenchFlagsTest, ABaseUrlThatNamesV1HoldsForTheEndpoint) {
  ASSERT_TRUE(give({"--base-url", "http://example.org:81/v1", "--endpoint", "/completions"}).ok());
  EXPECT_EQ(flags_.load.path, "/v1/completions");
  ASSERT_TRUE(give({"--base-url", "http://example.org:81/v1", "--endpoint", "/v1/completions"}).ok());
  EXPECT_EQ(flags_.load.path, "/v1/completions") << "not twice";
  EXPECT_THAT(refusal({"--base-url", "ftp://example.org"}), HasSubstr("--base-url"));
}

TEST_F(BenchFlagsTest, AnAddressOfIpVersion6NeedsNoBrackets) {
  ASSERT_TRUE(give({"--host", "::1", "--port", "81"}).ok());
  EXPECT_THAT(flags_.target.host, HasSubstr("::1"));
}

TEST_F(BenchFlagsTest, DatasetsOfAFileNeedOneAndOthersReadNone) {
  for (const char* name : {"sharegpt", "custom", "trace"}) {
    EXPECT_THAT(refusal({"--dataset-name", name}), AllOf(HasSubstr(name), HasSubstr("--dataset-path"))) << name;
    EXPECT_TRUE(give({"--dataset-name", name, "--dataset-path", "f"}).ok()) << name;
  }
  EXPECT_THAT(refusal({"--dataset-path", "f"}), HasSubstr("random reads no file"));
  EXPECT_THAT(refusal({"--dataset-name", "other"}), HasSubstr("parser"));
  EXPECT_THAT(refusal({"--trace-models", "a,b"}), HasSubstr("goes with --dataset-name trace"));
}

TEST_F(BenchFlagsTest, ATraceIsSentWholeUnlessANumberIsSaid) {
  ASSERT_TRUE(give({"--dataset-name", "trace", "--dataset-path", "f"}).ok());
  EXPECT_EQ(flags_.dataset.cut.rows_max, 0u);
  ASSERT_TRUE(give({"--dataset-name", "trace", "--dataset-path", "f", "--num-prompts", "7"}).ok());
  EXPECT_EQ(flags_.dataset.cut.rows_max, 7u);
}

TEST_F(BenchFlagsTest, ArrivalsAreCheckedBeforeAnythingIsSent) {
  EXPECT_THAT(refusal({"--request-rate", "0"}), HasSubstr("--request-rate"));
  EXPECT_THAT(refusal({"--burstiness", "-1"}), HasSubstr("--burstiness"));
  EXPECT_THAT(refusal({"--ramp-up-strategy", "linear"}), HasSubstr("--ramp-up-start-rps"));
  EXPECT_TRUE(give({"--request-rate", "inf"}).ok());
  ASSERT_TRUE(give({"--seed", "12"}).ok());
  EXPECT_EQ(flags_.arrivals.seed, 12u) << "one seed for prompts and times";
}

TEST_F(BenchFlagsTest, HeadersAreTakenInEitherSpelling) {
  ASSERT_TRUE(give({"--header", "X-One=1", "--header", "X-Two: b = c", "--header", "X-Empty="}).ok());
  EXPECT_THAT(flags_.load.headers, ElementsAre(Pair("X-One", "1"), Pair("X-Two", "b = c"), Pair("X-Empty", "")));
  EXPECT_THAT(refusal({"--header", "nothing"}), HasSubstr("write NAME=VALUE"));
  EXPECT_THAT(refusal({"--header", "=1"}), HasSubstr("empty name"));
  EXPECT_THAT(refusal({"--header", "X-A=1\r\nX-B: 2"}), HasSubstr("control character"));
}

TEST_F(BenchFlagsTest, AKeyComesFromTheFlagBeforeTheEnvironmentAndIsNotShown) {
  setenv("OPENAI_API_KEY", "from-environment", 1);
  ASSERT_TRUE(give({}).ok());
  EXPECT_THAT(flags_.load.headers, Contains(Pair("Authorization", "Bearer from-environment")));
  ASSERT_TRUE(give({"--api-key", "from-flag", "--header", "X-Secret=s"}).ok());
  EXPECT_THAT(flags_.load.headers, Contains(Pair("Authorization", "Bearer from-flag")));
  unsetenv("OPENAI_API_KEY");
  EXPECT_THAT(shown_settings(*app_), testing::UnorderedElementsAre(Pair("--header", "(set)"), Pair("--api-key", "(set)")));
}

TEST_F(BenchFlagsTest, WhatWasSetIsShownAndNothingElse) {
  ASSERT_TRUE(give({"--num-prompts", "5", "--goodput", "ttft:500", "tpot:50"}).ok());
  EXPECT_THAT(shown_settings(*app_), testing::UnorderedElementsAre(Pair("--num-prompts", "5"), Pair("--goodput", "ttft:500 tpot:50")));
}

TEST_F(BenchFlagsTest, SamplingIsSentAsItWasWritten) {
  ASSERT_TRUE(give({"--top-p", "0.5", "--top-k", "20", "--min-p", "0", "--temperature", "1"}).ok());
  EXPECT_EQ(flags_.load.extra_fields, ",\"temperature\":1,\"top_p\":0.5,\"top_k\":20,\"min_p\":0");
  EXPECT_THAT(refusal({"--top-p", "much"}), HasSubstr("parser"));
}

TEST_F(BenchFlagsTest, ExtraFieldsAreThoseOfAnObject) {
  ASSERT_TRUE(give({"--extra-body", R"({"a":[1,null],"b\"":{"c":"é"}})"}).ok());
  EXPECT_EQ(flags_.load.extra_fields, ",\"temperature\":0,\"a\":[1,null],\"b\\\"\":{\"c\":\"é\"}");
  EXPECT_THAT(refusal({"--extra-body", "[1]"}), HasSubstr("not a JSON object"));
  EXPECT_THAT(refusal({"--extra-body", "{"}), HasSubstr("--extra-body"));
}

TEST_F(BenchFlagsTest, PercentilesAlwaysHoldTheNinetyNinth) {
  ASSERT_TRUE(give({"--metric-percentiles", "50,99,99.9"}).ok());
  EXPECT_THAT(flags_.ranks, ElementsAre(50, 99, 99.9));
  ASSERT_TRUE(give({"--metric-percentiles", "0,100"}).ok());
  EXPECT_THAT(flags_.ranks, ElementsAre(0, 100, 99));
  for (const char* wrong : {"101", "-1", "x", "", "50,", "nan"}) EXPECT_THAT(refusal({"--metric-percentiles", wrong}), Not("accepted")) << wrong;
  EXPECT_THAT(refusal({"--percentile-metrics", "ttft,speed"}), AllOf(HasSubstr("'speed'"), HasSubstr("tpot")));
}

TEST_F(BenchFlagsTest, ObjectivesAreInMilliseconds) {
  ASSERT_TRUE(give({"--goodput", "ttft:500", "e2el:10000"}).ok());
  EXPECT_EQ(flags_.slo.ttft_s, 0.5);
  EXPECT_EQ(flags_.slo.e2el_s, 10);
  EXPECT_FALSE(flags_.slo.tpot_s.has_value());
  for (const char* wrong : {"ttft", "ttft:", "ttft:-1", "ttft:inf", "speed:1", ":5"}) EXPECT_THAT(refusal({"--goodput", wrong}), HasSubstr("--goodput")) << wrong;
}

TEST_F(BenchFlagsTest, WhatIsKeptInDetailIsSaved) {
  ASSERT_TRUE(give({"--save-detailed"}).ok());
  EXPECT_TRUE(flags_.save_result);
  EXPECT_TRUE(flags_.load.keep_text);
  ASSERT_TRUE(give({"--save-result"}).ok());
  EXPECT_FALSE(flags_.load.keep_text);
  EXPECT_THAT(refusal({"--metadata", "version"}), HasSubstr("write KEY=VALUE"));
}

TEST_F(BenchFlagsTest, LimitsOfNumbersAreTheParsers) {
  EXPECT_THAT(refusal({"--num-prompts", "0"}), HasSubstr("parser"));
  EXPECT_THAT(refusal({"--input-len", "4000001"}), HasSubstr("parser"));
  EXPECT_TRUE(give({"--input-len", "4000000"}).ok());
  EXPECT_THAT(refusal({"--client-threads", "65"}), HasSubstr("parser"));
  EXPECT_THAT(refusal({"--request-timeout", "0"}), HasSubstr("parser"));
  ASSERT_TRUE(give({"--request-timeout", "1.5"}).ok());
  EXPECT_EQ(flags_.load.request_timeout, std::chrono::milliseconds(1500));
}

}  // namespace
}  // namespace shoal
