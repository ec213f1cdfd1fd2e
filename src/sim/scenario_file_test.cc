// Scenarios as data, and the search for the fewest devices.
#include "sim/scenario_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "sim/planner.h"

namespace shoal {
namespace {

using testing::HasSubstr;

TEST(ScenarioFile, EveryPartIsRead) {
  const auto file = parse_scenario(R"({"about": "x", "seeds": 3, "cluster": {"nodes": 2, "scheduling": "request", "max_wait_s": 1.5, "pin": true},
      "workload": {"requests": 7}, "faults": [{"kind": "pause", "node": 1, "at_s": 0.5, "lasts_s": 2}],
      "random_faults": {"per_second": 2, "kinds": ["crash", "notice"]}, "expect": {"finished_min": 5}})");
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(file->seeds, 3u);
  EXPECT_EQ(file->scenario.nodes, 2u);
  EXPECT_EQ(file->scenario.scheduling, Scheduling::kRequest);
  EXPECT_EQ(file->scenario.pooling.max_wait, std::chrono::milliseconds(1500));
  EXPECT_TRUE(file->scenario.pooling.pinned);
  ASSERT_EQ(file->scenario.faults.size(), 1u);
  EXPECT_EQ(file->scenario.faults[0].kind, Fault::Kind::kPause);
  EXPECT_EQ(file->scenario.faults[0].lasts, std::chrono::seconds(2));
  EXPECT_EQ(file->scenario.fault_kinds.size(), 2u);
  Outcome sum;
  EXPECT_THAT(unmet(*file, sum), HasSubstr("finished_min is 5, but it came to 0"));
  sum.finished = 5;
  EXPECT_EQ(unmet(*file, sum), "");
}

TEST(ScenarioFile, MistakesAreNamed) {
  const auto message = [](const char* json) { return std::string(parse_scenario(json).status().message()); };
  EXPECT_THAT(message(R"({"claster": {}})"), HasSubstr("'claster' is not known here"));
  EXPECT_THAT(message(R"({"cluster": {"nodes": 0}})"), HasSubstr("cluster: 'nodes' is 0"));
  EXPECT_THAT(message(R"({"cluster": {"priority": 1001}})"), HasSubstr("'priority' is 1001, not within -1000 and 1000"));
  EXPECT_THAT(message(R"({"cluster": {"scheduling": "lifo"}})"), HasSubstr("'lifo', not token"));
  EXPECT_THAT(message(R"({"faults": [{"kind": "meteor"}]})"), HasSubstr("'meteor' is no kind of fault; known are apart, controller_crash, crash"));
  EXPECT_THAT(message(R"({"faults": [{"kind": "crash", "node": 4}]})"), HasSubstr("'node' is 4"));
  EXPECT_THAT(message(R"({"cluster": {"nodes": 2}, "faults": [{"kind": "apart", "node": 1, "peer": 1}]})"), HasSubstr("needs a 'peer'"));
  EXPECT_THAT(message(R"({"expect": {"luck_min": 1}})"), HasSubstr("'luck_min' is not known here"));
}

// Attainment grows by `each` per device.
SimulateDevices growing(double each) {
  return [each](const std::vector<DeviceGroup>& devices, const PlanShape&) -> StatusOr<Outcome> {
    Outcome outcome;
    double on_time = 0;
    for (const DeviceGroup& group : devices) on_time += each * group.count;
    outcome.attainment.tokens = 1000;
    outcome.attainment.tokens_on_time = static_cast<uint64_t>(std::min(1.0, on_time) * 1000);
    return outcome;
  };
}

TEST(Planner, FindsTheFewestDevices) {
  for (const uint32_t needed : {1u, 2u, 3u, 7u, 16u, 23u}) {
    const auto row = plan_kind(*find_hardware("H800"), {.attainment = 0.9, .devices_max = 64}, growing(0.9 / needed + 1e-3));
    ASSERT_TRUE(row.ok());
    ASSERT_TRUE(row->feasible()) << needed;
    EXPECT_EQ(row->probes[row->best].devices.front().count, needed);
    EXPECT_LT(row->probes.size(), 12u);
  }
}

TEST(Planner, SaysWhatTheMostDevicesReachedWhenNoneDo) {
  const auto row = plan_kind(*find_hardware("A10"), {.attainment = 0.9, .devices_max = 8}, growing(0.05));
  ASSERT_TRUE(row.ok());
  EXPECT_FALSE(row->feasible());
  EXPECT_THAT(row->infeasible, HasSubstr("8xA10 keep 40.0 % of the deadlines, not 90.0 %"));
}

TEST(Planner, AModelThatFitsNoDeviceIsTheReason) {
  const auto row = plan_kind(*find_hardware("A10"), {}, [](const auto&, const auto&) -> StatusOr<Outcome> { return invalid_argument("too large"); });
  ASSERT_TRUE(row.ok());
  EXPECT_EQ(row->infeasible, "too large");
}

// With two models at once each device is worth a quarter more; a partition is worth nothing.
TEST(Planner, AnotherShapeThatNeedsFewerDevicesIsTheBest) {
  const SimulateDevices simulate = [](const std::vector<DeviceGroup>& devices, const PlanShape& shape) {
    return growing(shape.rooms == 2 ? 0.125 : shape.prefill > 0 ? 0.05 : 0.1)(devices, shape);
  };
  const PlanGoal goal{.attainment = 0.9, .devices_max = 64};
  auto row = plan_kind(*find_hardware("H800"), goal, simulate);
  ASSERT_TRUE(row.ok() && row->feasible());
  EXPECT_EQ(row->probes[row->best].devices.front().count, 9u);
  ASSERT_TRUE(plan_shapes(*row, goal, simulate).ok());
  EXPECT_EQ(row->probes[row->best].devices.front().count, 8u);
  EXPECT_EQ(to_string(row->probes[row->best].shape, 8), "2 rooms");
  EXPECT_EQ(to_string(PlanShape{3, 2}, 8), "3P+5D, 2 rooms");
  const auto tried = [&](uint32_t count, const PlanShape& shape) {
    return std::any_of(row->probes.begin(), row->probes.end(), [&](const PlanProbe& p) { return p.devices.front().count == count && p.shape == shape; });
  };
  EXPECT_TRUE(tried(9, {3, 0}) && tried(9, {5, 0}) && tried(8, {2, 0}) && tried(7, {0, 2}));
}

// Two devices are worth more as one gang than each by itself.
TEST(Planner, GangsAreCountedWholeAndWiderOnesTried) {
  const SimulateDevices simulate = [](const std::vector<DeviceGroup>& devices, const PlanShape& shape) {
    return growing(devices.front().tensor == 4 ? 0.12 : 0.1)(devices, shape);
  };
  PlanGoal goal{.attainment = 0.9, .devices_max = 64};
  auto row = plan_kind(*find_hardware("H800"), goal, simulate, 2);
  ASSERT_TRUE(row.ok() && row->feasible());
  EXPECT_EQ(to_string(row->probes[row->best]), "10xH800:tp2");
  for (const PlanProbe& p : row->probes) EXPECT_EQ(p.devices.front().count % 2, 0u);
  ASSERT_TRUE(plan_shapes(*row, goal, simulate).ok());
  EXPECT_EQ(to_string(row->probes[row->best]), "8xH800:tp4");
  goal.devices_max = 9;
  EXPECT_THAT(plan_kind(*find_hardware("H800"), goal, simulate, 2)->infeasible, HasSubstr("8xH800:tp2 keep 80.0 %"));
}

TEST(Planner, AMixReplacesDearDevicesByCheapOnesWhereThatIsEnough) {
  const Hardware dear{"H100", 1, 1, 1, 1, 4.0}, cheap{"A10", 1, 1, 1, 1, 0.5};
  const auto same = growing(0.2);  // both are as fast
  const auto a = plan_kind(dear, {}, same), b = plan_kind(cheap, {.devices_max = 2}, same);
  ASSERT_TRUE(a.ok() && b.ok() && a->feasible() && !b->feasible());
  const auto mix = plan_mix(*a, *b, {.devices_max = 4}, same);
  ASSERT_TRUE(mix.ok());
  EXPECT_LT(price_per_hour(mix->devices), a->price_per_hour());
}

TEST(Planner, ObjectivesBelowASingleStepAreExplained) {
  const ModelShape& model = *find_model_shape("qwen2_5_7b");
  const StepCost cost{0.005, 2e-5, 0, 0.009, 0, 1e-4};
  using std::chrono::milliseconds;
  const std::string device = "H800";
  EXPECT_THAT(out_of_reach(model, cost, device, {milliseconds(1000), milliseconds(5)}, 1000, 0.5), HasSubstr("9.1 ms on H800 even with one sequence"));
  EXPECT_THAT(out_of_reach(model, cost, device, {milliseconds(10), milliseconds(50)}, 1000, 0.5), HasSubstr("0.03 s on H800 alone"));
  EXPECT_THAT(out_of_reach(model, cost, device, {milliseconds(300), milliseconds(50)}, 1000, 0.5), HasSubstr("only resident models keep it"));
  EXPECT_EQ(out_of_reach(model, cost, device, {milliseconds(1000), milliseconds(50)}, 1000, 0.5), "");
}

}  // namespace
}  // namespace shoal
