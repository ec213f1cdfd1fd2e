// Workloads and clusters as they are asked for on a command line.
#include "sim/cluster.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "sim/workloads.h"
#include "sim/world.h"

namespace shoal {
namespace {

using testing::HasSubstr;

std::string error_of(const auto& status_or) { return std::string(status_or.status().message()); }

TEST(Cluster, DevicesAndMixesAreReadAndMistakesNamed) {
  const auto devices = parse_devices("16xH800,A10");
  ASSERT_TRUE(devices.ok());
  EXPECT_EQ((*devices)[0].count, 16u);
  EXPECT_EQ((*devices)[1].hardware->name, "A10");
  const auto gangs = parse_devices("8xH800:tp4,A10");
  ASSERT_TRUE(gangs.ok());
  EXPECT_EQ((*gangs)[0].tensor, 4u);
  EXPECT_EQ((*gangs)[0].nodes(), 2u);
  EXPECT_EQ(to_string(*gangs), "8xH800:tp4 + 1xA10");
  EXPECT_THAT(error_of(parse_devices("6xH800:tp4")), HasSubstr("6 devices make no whole gangs of 4"));
  EXPECT_THAT(error_of(parse_devices("6xH800:tp3")), HasSubstr("'tp3' is none of tp1, tp2"));
  EXPECT_THAT(error_of(parse_devices("6xH800:")), HasSubstr("'' is none of tp1, tp2"));
  EXPECT_THAT(error_of(parse_devices("3xH900")), HasSubstr("'H900' is no known device"));
  EXPECT_THAT(error_of(parse_devices("0xH800")), HasSubstr("not a number from 1"));
  EXPECT_THAT(error_of(parse_model_mix("gpt9", 3)), HasSubstr("no known model"));
  const auto mix = parse_model_mix("qwen2_5_7b:6,yi1_5_9b_chat:2,llama2_13b_chat:2", 20);
  ASSERT_TRUE(mix.ok());
  EXPECT_EQ(std::count(mix->begin(), mix->end(), find_model_shape("qwen2_5_7b")), 12);
  EXPECT_EQ(std::count(mix->begin(), mix->end(), find_model_shape("llama2_13b_chat")), 4);
}

TEST(Cluster, AModelThatFitsNoDeviceIsNamedWithBothSizes) {
  ClusterSpec spec;
  spec.devices = *parse_devices("2xA10");
  spec.models = *parse_model_mix("llama2_13b_chat", 1);
  EXPECT_THAT(error_of(make_nodes(spec)), HasSubstr("llama2_13b_chat#0 (24.4 GiB of weights) does not fit A10, of which 18.0 GiB"));
}

TEST(Cluster, AModelThatFitsNoDeviceIsServedByAGangOfThem) {
  ClusterSpec spec;
  spec.devices = *parse_devices("4xH800");
  spec.models = *parse_model_mix("qwen2_72b", 2);
  EXPECT_THAT(error_of(make_nodes(spec)), HasSubstr("does not fit H800"));
  spec.devices = *parse_devices("8xH800:tp4");
  WorldSetup setup;
  setup.nodes = *make_nodes(spec);
  ASSERT_EQ(setup.nodes.size(), 2u);
  EXPECT_EQ(setup.nodes[0].kind, "H800:tp4");
  EXPECT_EQ(setup.nodes[0].price_per_hour, 4 * find_hardware("H800")->price_per_hour);
  setup.workload = std::make_unique<SyntheticWorkload>(SyntheticSpec{.requests_per_second = 0.5, .duration_seconds = 60}, model_lengths(setup.nodes));
  const Outcome outcome = World(std::move(setup)).run();
  EXPECT_TRUE(outcome.violations.empty()) << outcome.violations.front();
  EXPECT_EQ(outcome.finished, outcome.requests);
  EXPECT_GT(outcome.requests, 15u);
}

TEST(Workloads, AnAnswerOfWhichNobodySaysHowLongItWillBeIsAsLong) {
  const auto run = [](bool told) {
    ClusterSpec spec;
    spec.devices = *parse_devices("1xH800");
    spec.models = *parse_model_mix("qwen2_5_7b", 2);
    WorldSetup setup;
    setup.nodes = *make_nodes(spec);
    setup.workload = std::make_unique<SyntheticWorkload>(SyntheticSpec{.requests_per_second = 0.5, .duration_seconds = 60, .told = told}, model_lengths(setup.nodes));
    return World(std::move(setup)).run();
  };
  const Outcome told = run(true), untold = run(false);
  for (const Outcome* outcome : {&told, &untold}) {
    EXPECT_TRUE(outcome->violations.empty()) << outcome->violations.front();
    EXPECT_EQ(outcome->finished, outcome->requests);
  }
  EXPECT_EQ(untold.attainment.tokens, told.attainment.tokens);
}

TEST(Workloads, GapsHaveTheCoefficientOfVariationThatWasAskedFor) {
  for (const double cv : {0.5, 1.0, 3.0}) {
    SyntheticSpec spec{.requests_per_second = 50, .cv = cv, .duration_seconds = 2000};
    SyntheticWorkload workload(spec, {4096});
    double sum = 0, squares = 0, last = 0;
    uint64_t n = 0;
    while (const auto arrival = workload.next()) {
      const double at = to_seconds(arrival->at.time_since_epoch());
      sum += at - last, squares += (at - last) * (at - last), last = at;
      ++n;
    }
    const double mean = sum / static_cast<double>(n);
    EXPECT_NEAR(1 / mean, 50, 50 * 0.05 * cv) << cv;
    EXPECT_NEAR(std::sqrt(squares / static_cast<double>(n) - mean * mean) / mean, cv, 0.06 * cv) << cv;
  }
}

TEST(Workloads, ZipfGivesTheFirstModelItsShare) {
  SyntheticWorkload workload({.requests_per_second = 100, .zipf = 1, .duration_seconds = 200}, std::vector<uint32_t>(10, 4096));
  uint64_t first = 0, all = 0;
  while (const auto arrival = workload.next()) first += arrival->request.model.value == 0, ++all;
  EXPECT_NEAR(static_cast<double>(first) / static_cast<double>(all), 1 / 2.929, 0.02);  // 1 / H(10)
}

TEST(Workloads, ATraceKeepsItsTimesLengthsModelsAndSharedText) {
  std::vector<TraceRow> rows = {{0, 600, 5, "b", {7, 8}}, {1.5, 700, 9, "a", {7, 9}}, {2, 9000, 9000, "a", {}}};
  TraceWorkload workload(rows, {4096, 2048});
  const auto x = workload.next(), y = workload.next(), z = workload.next();
  EXPECT_EQ(x->request.model, ModelId(1));
  EXPECT_EQ(y->request.model, ModelId(0));
  EXPECT_EQ(y->at, TimePoint(std::chrono::milliseconds(1500)));
  EXPECT_EQ(y->request.max_tokens, 9u);
  EXPECT_TRUE(std::equal(x->request.prompt.begin(), x->request.prompt.begin() + 512, y->request.prompt.begin()));
  EXPECT_NE(x->request.prompt[512], y->request.prompt[512]);
  EXPECT_EQ(z->request.prompt.size() + z->request.max_tokens, 4096u);
  EXPECT_EQ(workload.cut(), 1u);
  EXPECT_FALSE(workload.next());
}

TEST(Cluster, SixteenDevicesServeManyMoreModelsThanTheyHold) {
  ClusterSpec spec;
  spec.devices = *parse_devices("4xH800");
  spec.models = *parse_model_mix("qwen2_5_7b:6,yi1_5_9b_chat:2,llama2_13b_chat:2", 20);
  WorldSetup setup;
  setup.nodes = *make_nodes(spec);
  setup.workload = std::make_unique<SyntheticWorkload>(SyntheticSpec{.requests_per_second = 2, .duration_seconds = 60}, model_lengths(setup.nodes));
  setup.sample_seconds = 1;
  setup.spans_max = 1000;
  const Outcome outcome = World(std::move(setup)).run();
  EXPECT_TRUE(outcome.violations.empty()) << outcome.violations.front();
  EXPECT_EQ(outcome.finished, outcome.requests);
  EXPECT_GT(outcome.requests, 80u);
  EXPECT_GT(outcome.attainment.of_tokens(), 0.99);
  EXPECT_GT(outcome.loads, 20u);
  EXPECT_GE(outcome.samples.size(), 60u);
  EXPECT_FALSE(outcome.spans.empty());
}

TEST(Outcome, QuantilesOfAHistogramAreWithinOnePercent) {
  Histogram h;
  for (int i = 1; i <= 10000; ++i) h.add(i * 1e-3);
  EXPECT_NEAR(h.quantile(0.5), 5, 0.06);
  EXPECT_NEAR(h.quantile(0.99), 9.9, 0.11);
  EXPECT_NEAR(h.quantile(1), 10, 0.1);
  EXPECT_NEAR(h.mean(), 5.0005, 1e-9);
}

}  // namespace
}  // namespace shoal
