#include "gateway/timeline.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <set>

#include "base/clock.h"
#include "gateway/test_support.h"

namespace shoal {
namespace {

using std::chrono::milliseconds;

constexpr NodeId kNode{2};
const TimePoint kStart{std::chrono::seconds(100)};
TimePoint at(int ms) { return kStart + milliseconds(ms); }

std::vector<ModelRef> names() {
  return {std::make_shared<const ModelEntry>(test::World::entry(0, "tiny")), std::make_shared<const ModelEntry>(test::World::entry(1, "org/other"))};
}

NodeStatus busy() {
  NodeStatus status;
  status.at = at(900);
  status.events = {{DeviceAct::kPrefill, ModelId(0), at(0), at(10), 1, 64}, {DeviceAct::kDecode, ModelId(0), at(10), at(60), 5, 10},
                   {DeviceAct::kKvOut, ModelId(0), at(60), at(62), 0, 4096}, {DeviceAct::kDrop, ModelId(0), at(62), at(62)}};
  SwitchRecord record{ModelId(1), {ModelId(0)}, SwitchEnd::kServed, at(20), at(60), at(62), at(162), at(163)};
  record.stages = {0.001, 0.002, 0.003, 0.04, 0.05, 1000, 2000};
  record.visible_seconds = 0.1;
  record.ahead = true;
  status.switches = {record};
  return status;
}

RequestSpan span() {
  return {.id = RequestId(7), .model = ModelId(1), .arrival = at(20), .first_token = at(170), .end = at(300), .prompt_tokens = 12, .output_tokens = 5,
          .max_tokens = 8, .finish = "stop", .slo = {}, .tokens_on_time = 4};
}

TEST(NodeTimeline, KnowsWhatSwitchesFoundInItsPlace) {
  NodeTimeline timeline(kStart);
  NodeStatus status = busy();
  status.switches[0].stages.bytes_adopted = 500;
  timeline.add(kNode, status, at(900));
  status.switches[0].stages.bytes_written = 0;
  timeline.add(kNode, status, at(1000));
  const SwitchTotals t = timeline.switch_totals().at(ModelId(1));
  EXPECT_EQ(t.bytes_adopted, 1000u);
  EXPECT_EQ(t.copied_nothing, 1u);
}

TEST(NodeTimeline, AddsUpSwitchesByModelAndStage) {
  NodeTimeline timeline(kStart);
  timeline.add(kNode, busy(), at(900));
  timeline.add(kNode, busy(), at(1000));
  const auto totals = timeline.switch_totals();
  ASSERT_EQ(totals.size(), 1u);
  const SwitchTotals& t = totals.at(ModelId(1));
  EXPECT_EQ(t.of(SwitchEnd::kServed), 2u);
  EXPECT_EQ(t.hidden, 0u);
  EXPECT_EQ(t.ahead_by_end, (std::array<uint64_t, 4>{2, 0, 0, 0}));
  EXPECT_EQ(t.bytes_written, 4000u);
  EXPECT_NEAR(t.load_seconds, 0.2, 1e-9);
  EXPECT_NEAR(t.stages[0], 0.004, 1e-9) << "drain";
  EXPECT_NEAR(t.stages[5], 0.1, 1e-9) << "repack";
  EXPECT_EQ(timeline.switches_within(std::chrono::seconds(1), at(1000)), 2u);
  EXPECT_EQ(timeline.switches_within(milliseconds(100), at(1000)), 0u);
}

// The rules of the Trace Event Format that viewers rely on.
TEST(NodeTimeline, ThePageIsInTheTraceEventFormat) {
  NodeTimeline timeline(kStart);
  timeline.name_models(names());
  timeline.add(kNode, busy(), at(900));
  timeline.add(span());
  const Json trace = Json::parse(timeline.chrome_trace());
  ASSERT_TRUE(trace["traceEvents"].is_array());
  std::set<std::string> seen;
  int open = 0;
  for (const Json& event : trace["traceEvents"]) {
    const std::string phase = event.at("ph");
    ASSERT_TRUE(event.at("pid").is_number_unsigned() && event.at("tid").is_number() && event.at("name").is_string()) << event;
    if (phase == "M") {
      EXPECT_TRUE(event["args"]["name"].is_string());
      continue;
    }
    EXPECT_GE(event.at("ts").get<double>(), 0) << event;
    if (phase == "X") {
      EXPECT_GE(event.at("dur").get<double>(), 0);
    } else if (phase == "i") {
      EXPECT_EQ(event.at("s"), "t");
    } else if (phase == "b" || phase == "n" || phase == "e") {
      EXPECT_EQ(event.at("id"), event["cat"] == "request" ? "7" : "1");
    }
    open += phase == "b" ? 1 : phase == "e" ? -1 : 0;
    seen.insert(phase + " " + event["name"].get<std::string>());
  }
  EXPECT_EQ(open, 0);
  for (const char* what : {"X tiny", "X org/other", "X read", "X repack", "b kv_out tiny", "e kv_out tiny", "i drop tiny", "b org/other", "e org/other"}) {
    EXPECT_TRUE(seen.contains(what)) << what;
  }
}

TEST(NodeTimeline, RemembersOnlySoMuch) {
  NodeTimeline timeline(kStart);
  NodeStatus status;
  status.at = at(0);
  for (int i = 0; i < 500; ++i) status.events.push_back({DeviceAct::kDecode, ModelId(0), at(i), at(i + 1), 1, 1});
  for (int i = 0; i < 100; ++i) timeline.add(kNode, status, at(0));
  EXPECT_LE(Json::parse(timeline.chrome_trace())["traceEvents"].size(), NodeTimeline::kEntriesMax + 10);
}

TEST(NodeTimeline, AClockFarFromOursIsShifted) {
  NodeTimeline timeline(kStart);
  NodeStatus status = busy();  // as if its clock were 50 s behind
  const Duration behind = std::chrono::seconds(50);
  status.at -= behind;
  for (DeviceEvent& event : status.events) event = {event.act, event.model, event.begin - behind, event.end - behind, event.steps, event.amount};
  timeline.add(kNode, status, at(900));
  const Json trace = Json::parse(timeline.chrome_trace());
  for (const Json& event : trace["traceEvents"]) {
    if (event["ph"] == "X" && event["cat"] == "prefill") {
      EXPECT_NEAR(event["ts"].get<double>(), 0, 1);
    }
  }
}

TEST(RunRecorder, WritesALinePerThingAndNeverAWordOfText) {
  const std::string path = testing::TempDir() + "shoal_run_" + std::to_string(getpid()) + ".jsonl";
  {
    NodeTimeline timeline(kStart);
    timeline.record(*RunRecorder::open(path, kStart));
    timeline.name_models(names());
    timeline.add(kNode, busy(), at(900));
    timeline.add(span());
  }
  std::ifstream file(path);
  std::map<std::string, int> types;
  for (std::string line; std::getline(file, line);) {
    const Json json = Json::parse(line);
    ++types[json["type"]];
    if (json["type"] != "request") continue;
    EXPECT_EQ(json["model"], "org/other");
    EXPECT_DOUBLE_EQ(json["arrival"], 0.02);
    EXPECT_EQ(json["prompt_tokens"], 12);
    EXPECT_EQ(json["output_tokens"], 5);
    EXPECT_EQ(json["finish"], "stop");
  }
  EXPECT_EQ(types, (std::map<std::string, int>{{"drop", 1}, {"kv", 1}, {"model", 2}, {"request", 1}, {"switch", 1}, {"turn", 2}}));
  std::filesystem::remove(path);
  EXPECT_FALSE(RunRecorder::open("/no/such/folder/x", kStart).ok());
}

}  // namespace
}  // namespace shoal
