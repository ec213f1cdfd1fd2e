#include "replay/replay.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/json.h"
#include "nlohmann/json.hpp"
#include "replay/event_log.h"
#include "roles/test_body.h"

namespace shoal {
namespace {

using testing::HasSubstr;

NodeConfig three_models() {
  NodeConfig c = config(12, {model(0), model(1), model(2)});
  c.self = NodeId(1);
  c.gateways = {NodeId(9)};
  c.host_pages = 8;
  c.turns.quota_max_seconds = 0.7;
  for (size_t i = 0; i < c.models.size(); ++i) c.models[i].costs.observe_step({1, 10, true}, 0.0123 * static_cast<double>(i + 1));
  return c;
}

// A node in a body of a few lines that logs what passes.
class Logged {
 public:
  Logged() : node_(three_models()) {
    lines.push_back(logged_config(three_models()));
    give(Tick{});
  }

  void give(const Event& event) {
    now_ += milliseconds(7);
    const std::vector<Effect> effects = node_.handle(event, now_);
    lines.push_back(logged_turn(NodeId(1), event, now_, effects));
    for (const Effect& effect : effects) {
      if (const auto* step = std::get_if<StartStep>(&effect)) due_.push_back(done(*step));
      if (const auto* load = std::get_if<LoadWeights>(&effect)) due_.push_back(WeightsReady{load->model, OkStatus(), LoadStages{.read_seconds = 0.1}});
      if (const auto* copy = std::get_if<CopyKv>(&effect)) due_.push_back(KvCopied{copy->model, copy->move.id});
    }
  }
  void submit(uint64_t id, uint32_t model) {
    Request r;
    r.id = RequestId(id);
    r.model = ModelId(model);
    for (uint32_t i = 0; i < 20; ++i) r.prompt.push_back(static_cast<TokenId>((i + id) % 90));
    r.max_tokens = 30;
    give(MessageFrom{NodeId(9), Submit{r}});
  }
  void run() {
    for (int i = 0; !due_.empty() && i < 10'000; ++i) {
      const Event event = due_.front();
      due_.erase(due_.begin());
      give(event);
    }
  }

  std::vector<std::string> lines;

 private:
  static Event done(const StartStep& step) {
    StepDone done{step.model, {step.input.step, {}}};
    for (const StepSlice& slice : step.input.slices) {
      SliceResult& out = done.result.slices.emplace_back();
      out.request = slice.request;
      if (slice.sample) out.sampled.push_back({5, -1.25f, {{7, -0.1f}}});
    }
    return done;
  }

  Node node_;
  TimePoint now_{};
  std::vector<Event> due_;
};

std::vector<std::string> some_run() {
  Logged node;
  for (uint64_t id = 1; id <= 9; ++id) node.submit(id, static_cast<uint32_t>(id % 3));
  node.give(MessageFrom{NodeId(9), Cancel{RequestId(4), 0}});
  node.give(ClusterChanged{{3, {{NodeId(1), {NodeId(1), Role::kNode, 2, {ModelId(0)}, false}}}}});
  node.give(LoadProgress{ModelId(0), 0.3f});
  node.give(ModelAdded{model(5)});
  node.submit(10, 5);
  node.run();
  node.give(ModelRetired{ModelId(1)});
  node.give(DrainRequested{});
  return node.lines;
}

Status replayed(const std::vector<std::string>& lines, ReplayCounts* counts = nullptr) {
  Replay replay;
  for (const std::string& line : lines) RETURN_IF_ERROR(replay.line(line));
  if (counts != nullptr) *counts = replay.counts();
  return OkStatus();
}

TEST(Replay, TheSameEventsGiveTheSameEffects) {
  const std::vector<std::string> lines = some_run();
  ReplayCounts counts;
  EXPECT_EQ(replayed(lines, &counts), OkStatus());
  EXPECT_EQ(counts.events, lines.size() - 1);
  EXPECT_GE(counts.loads, 3u);
  EXPECT_GT(counts.steps, 30u);
}

// As runs were recorded before these were events: the change on a line of its own, then a tick.
TEST(Replay, ModelsThatComeAndGoOnLinesOfTheirOwnAreHeardAtTheNextTick) {
  std::vector<std::string> before;
  size_t changes = 0;
  for (const std::string& line : some_run()) {
    Json json = *parse_json(line);
    const std::string kind = json.contains("event") ? json["event"][0].get<std::string>() : "";
    if (kind == "add" || kind == "retire") {
      ++changes;
      before.push_back(dump_json({{"node", 1}, {kind, json["event"][1]}}));
      json["event"] = Json::array({"tick"});
    }
    before.push_back(dump_json(json));
  }
  EXPECT_EQ(changes, 2u);
  EXPECT_EQ(replayed(before), OkStatus());
  before.insert(before.end() - 1, R"({"node":1,"retire":2})");
  EXPECT_THAT(std::string(replayed(before).message()), HasSubstr("a tick must follow"));
}

TEST(Replay, EveryOtherSettingOrEstimateIsNoticed) {
  const std::vector<std::string> lines = some_run();
  const auto with = [&](auto change) {
    std::vector<std::string> other = lines;
    Json line = *parse_json(lines[0]);
    change(line["config"]);
    other[0] = dump_json(line);
    return replayed(other).code();
  };
  EXPECT_EQ(with([](Json&) {}), StatusCode::kOk);
  EXPECT_EQ(with([](Json& c) { c["pages"] = 20; }), StatusCode::kAborted);
  EXPECT_EQ(with([](Json& c) { c["limits"]["sequences_max"] = 1; }), StatusCode::kAborted);
  EXPECT_EQ(with([](Json& c) { c["scheduling"] = 1; }), StatusCode::kAborted);
  EXPECT_EQ(with([](Json& c) { c["models"][1]["costs"] = ModelEstimator().to_json(); }), StatusCode::kAborted);
}

TEST(Replay, AnEffectThatIsMissingTooManyOrAnotherOneIsNamed) {
  const std::vector<std::string> lines = some_run();
  size_t at = 0;
  while (lines[at].find("step of") == std::string::npos) ++at;
  const auto with = [&](auto change) {
    std::vector<std::string> other = lines;
    Json line = *parse_json(lines[at]);
    change(line["effects"]);
    other[at] = dump_json(line);
    return std::string(replayed(other).message());
  };
  EXPECT_THAT(with([](Json& e) { e.push_back("drop of 1"); }), testing::AllOf(HasSubstr("recorded was 'drop of 1'"), HasSubstr("answers 'nothing'")));
  EXPECT_THAT(with([](Json& e) { e.erase(0); }), HasSubstr("this build answers"));
  EXPECT_THAT(with([](Json& e) {
    auto& text = e[e.size() - 1].get_ref<std::string&>();
    text.back() = text.back() == '0' ? '1' : '0';
  }), HasSubstr("event"));
}

// A file may say anything: none of it reaches a check of the node.
TEST(Replay, LinesThatCannotBeAreRefusedWithTheReason) {
  const std::vector<std::string> lines = some_run();
  const std::string turn = R"({"node":1,"now":999999999999,"effects":[],"event":)";
  const struct {
    std::string line;
    const char* why;
  } cases[] = {
      {"", "JSON"},
      {"{}", "no line"},
      {R"({"node":7,"retire":1})", "has no config"},
      {R"({"node":1,"now":1,"event":["tick"],"effects":[]})", "goes back"},
      {turn + R"(["step",0,77,[]]})", "not begun"},
      {turn + R"(["weights",0,[0,""],{},1,false]})", "unmap_seconds"},
      {turn + R"(["weights",0,[0,""],{},1]})", "a list is not as long as it must be"},
      {turn + R"(["packed",0,[0,""],{}]})", "unmap_seconds"},
      {turn + R"(["copied",0,1,true]})", "not begun"},
      {turn + R"(["message",9,"AAAA"]})", "message"},
      {turn + R"(["message",9,"!"]})", "Base64"},
      {turn + R"(["add",{}]})", "missing"},
      {turn + R"(["retire","x"]})", "is not a number"},
      {turn + R"(["what"]})", "no such kind"},
      {turn + R"([]})", "begins with its kind"},
      {turn + R"(["cluster",1,[[1,9,1,false,[]]]]})", "role"},
      {R"({"node":1,"config":{}})", "missing"},
  };
  for (const auto& c : cases) {
    std::vector<std::string> other = lines;
    other.push_back(c.line);
    const Status status = replayed(other);
    EXPECT_NE(status.code(), StatusCode::kAborted) << c.line;
    EXPECT_THAT(std::string(status.message()), HasSubstr(c.why)) << c.line;
  }
  Json line = *parse_json(lines[0]);
  line["config"]["models"][0]["weight_bytes"] = uint64_t{1} << 40;
  EXPECT_THAT(std::string(replayed({dump_json(line)}).message()), HasSubstr("does not fit"));
  line["config"]["pages"] = 0;
  EXPECT_THAT(std::string(replayed({dump_json(line)}).message()), HasSubstr("absurd"));
}

}  // namespace
}  // namespace shoal
