#include "apps/simulate_flags.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "CLI/CLI.hpp"

namespace shoal {
namespace {

using testing::AllOf;
using testing::HasSubstr;

class SimulateFlagsTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::path(testing::TempDir()) / ("shoal_simulate_flags_" + std::to_string(getpid()));
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string file(const char* name, const std::string& text) {
    const std::string path = (folder_ / name).string();
    std::ofstream(path) << text;
    return path;
  }
  // Two models' requests, the second after ten seconds.
  std::string two_models() {
    return file("two.csv", "Request Time,Model Name,Input Length,Output Length\n00:00:00,a,100,10\n00:00:10,b,200,20\n");
  }
  static SimulateFlags parsed(std::vector<std::string> words) {
    CLI::App app("test");
    SimulateFlags flags;
    add_workload_flags(app, flags);
    add_cluster_flags(app, flags);
    std::reverse(words.begin(), words.end());
    app.parse(words);
    return flags;
  }
  static std::string refusal(const SimulateFlags& flags) {
    const auto inputs = SimulateInputs::read(flags);
    return inputs.ok() ? "accepted" : std::string(inputs.status().message());
  }

  std::filesystem::path folder_;
};

TEST_F(SimulateFlagsTest, EachTraceIsRunUnderEachPolicy) {
  SimulateFlags flags = parsed({"--trace", "x/one.csv,two.csv"});
  flags.policies = {"token", "static"};
  std::vector<std::string> runs;
  for (const RunSpec& run : runs_of(flags)) runs.push_back(run.label + " " + run.policy);
  EXPECT_THAT(runs, testing::ElementsAre("one.csv token", "one.csv static", "two.csv token", "two.csv static"));
  EXPECT_EQ(runs_of({}).front().label, "synthetic");
}

TEST_F(SimulateFlagsTest, AnUnknownPolicyIsToldTheFour) {
  SimulateFlags flags;
  flags.policies = {"token", "clever"};
  EXPECT_THAT(refusal(flags), AllOf(HasSubstr("clever"), HasSubstr("token, paper, request, static")));
}

TEST_F(SimulateFlagsTest, AFaultInAFileNamesTheFile) {
  SimulateFlags flags;
  flags.traces = {file("broken.csv", "TIMESTAMP,ContextTokens,GeneratedTokens\nsoon,1,1\n")};
  EXPECT_THAT(refusal(flags), AllOf(HasSubstr("broken.csv"), HasSubstr("line 2")));
  flags.traces = {(folder_ / "missing.csv").string()};
  EXPECT_THAT(refusal(flags), HasSubstr("missing.csv"));
  flags.traces = {file("lengths.csv", "num_prefill_tokens,num_decode_tokens\n1,2\n")};
  EXPECT_THAT(refusal(flags), HasSubstr("give it to --lengths"));
  flags = {};
  flags.profiles = file("profiles.csv", "nonsense\n");
  EXPECT_THAT(refusal(flags), HasSubstr("profiles.csv"));
  flags = {};
  flags.shapes = file("shapes.csv", "nonsense\n");
  EXPECT_THAT(refusal(flags), HasSubstr("shapes.csv"));
}

TEST_F(SimulateFlagsTest, ACutThatLeavesNothingNamesTheTraceAndItsSpan) {
  SimulateFlags flags;
  flags.traces = {two_models()};
  flags.cut.start_s = 60;
  EXPECT_THAT(refusal(flags), AllOf(HasSubstr("two.csv"), HasSubstr("spans 10 s")));
}

TEST_F(SimulateFlagsTest, ModelsAreThoseSaidElseThoseOfTheTraceElseSixteen) {
  SimulateFlags flags;
  EXPECT_EQ(SimulateInputs::read(flags)->models({"synthetic", "token"}), 16u);
  flags.traces = {two_models()};
  const RunSpec run{"two.csv", "token"};
  EXPECT_EQ(SimulateInputs::read(flags)->models(run), 2u);
  flags.models = 5;
  EXPECT_EQ(SimulateInputs::read(flags)->models(run), 5u);
}

TEST_F(SimulateFlagsTest, AMixThatNamesNoModelIsRefused) {
  SimulateFlags flags;
  const auto good = SimulateInputs::read(flags);
  EXPECT_EQ(good->mix(10)->size(), 10u);
  flags.mix = "nobody_7b:1";
  EXPECT_THAT(SimulateInputs::read(flags)->mix(3).status().message(), HasSubstr("nobody_7b"));
}

TEST_F(SimulateFlagsTest, TheSchedulersOfThePaperHaveItsPartitionAndItsRooms) {
  SimulateFlags flags;
  flags.models = 4;
  const auto inputs = *SimulateInputs::read(flags);
  const auto devices = parse_devices("8xH800");
  ASSERT_TRUE(devices.ok()) << devices.status();
  const auto paper = inputs.setup({"synthetic", "paper"}, *devices);
  const auto token = inputs.setup({"synthetic", "token"}, *devices);
  ASSERT_TRUE(paper.ok() && token.ok()) << paper.status() << token.status();
  EXPECT_EQ(paper->nodes.size(), 8u);
  const auto prompts_only = [](const WorldSetup& setup) {
    return std::count_if(setup.nodes.begin(), setup.nodes.end(), [](const auto& node) { return node.config.instance_role == InstanceRole::kPrefill; });
  };
  EXPECT_EQ(prompts_only(*paper), 3);
  EXPECT_EQ(prompts_only(*token), 0);
  EXPECT_EQ(paper->balance_interval, Duration::max());
  EXPECT_NE(token->balance_interval, Duration::max());
}

TEST_F(SimulateFlagsTest, NumbersOutOfRangeAreTheParsersToRefuse) {
  for (const std::vector<std::string>& words : std::vector<std::vector<std::string>>{
           {"--cv", "101"}, {"--memory-share", "0"}, {"--memory-share", "1.01"}, {"--models", "0"}, {"--models", "100001"}, {"--ttft", "0"},
           {"--max-model-len", "63"}, {"--duration", "0"}, {"--request-rate", "-1"}, {"--rooms", "1001"}, {"--prefill", "-1"}}) {
    EXPECT_THROW(parsed(words), CLI::ParseError) << words[0] << " " << words[1];
  }
  EXPECT_EQ(parsed({"--memory-share", "1"}).memory_share, 1);
}

}  // namespace
}  // namespace shoal
