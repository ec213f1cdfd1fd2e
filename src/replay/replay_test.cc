#include "replay/replay.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <functional>

#include "base/json.h"
#include "replay/event_log.h"
#include "replay/fuzz_targets.h"
#include "replay/record_reader.h"
#include "roles/test_body.h"
#include "wire/records.pb.h"

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
    records.push_back(logged_config(three_models()));
    give(Tick{});
  }

  void give(const Event& event) {
    now_ += milliseconds(7);
    const std::vector<Effect> effects = node_.handle(event, now_);
    records.push_back(logged_turn(NodeId(1), event, now_, effects));
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

  std::vector<std::string> records;

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
  node.give(DigestKnown{ModelId(0), ModelDigest(0, {1, 2})});
  node.give(ModelAdded{model(5)});
  node.submit(10, 5);
  node.run();
  node.give(ModelRetired{ModelId(1)});
  node.give(DrainRequested{});
  return node.records;
}

Status replayed(const std::vector<std::string>& records, ReplayCounts* counts = nullptr) {
  Replay replay;
  for (const std::string& record : records) RETURN_IF_ERROR(replay.record(record));
  if (counts != nullptr) *counts = replay.counts();
  return OkStatus();
}

// One record of a run, changed.
std::vector<std::string> with(std::vector<std::string> records, size_t at, const std::function<void(pb::Record&)>& change) {
  pb::Record record;
  EXPECT_TRUE(record.ParseFromString(records.at(at)));
  change(record);
  records[at] = record.SerializeAsString();
  return records;
}

TEST(Replay, TheSameEventsGiveTheSameEffects) {
  const std::vector<std::string> records = some_run();
  ReplayCounts counts;
  EXPECT_EQ(replayed(records, &counts), OkStatus());
  EXPECT_EQ(counts.events, records.size() - 1);
  EXPECT_GE(counts.loads, 3u);
  EXPECT_GT(counts.steps, 30u);
}

TEST(Replay, EveryOtherSettingOrEstimateIsNoticed) {
  const std::vector<std::string> records = some_run();
  const auto code = [&](auto change) { return replayed(with(records, 0, [&](pb::Record& r) { change(*r.mutable_config()); })).code(); };
  EXPECT_EQ(code([](pb::NodeConfig&) {}), StatusCode::kOk);
  EXPECT_EQ(code([](pb::NodeConfig& c) { c.set_pages(20); }), StatusCode::kAborted);
  EXPECT_EQ(code([](pb::NodeConfig& c) { c.set_sequences_max(1); }), StatusCode::kAborted);
  EXPECT_EQ(code([](pb::NodeConfig& c) { c.set_scheduling(1); }), StatusCode::kAborted);
  EXPECT_EQ(code([](pb::NodeConfig& c) { c.mutable_models(1)->clear_costs(); }), StatusCode::kAborted);
}

TEST(Replay, AnEffectThatIsMissingTooManyOrAnotherOneIsNamed) {
  const std::vector<std::string> records = some_run();
  size_t at = 0;
  while (records[at].find("step of") == std::string::npos) ++at;
  const auto message = [&](const std::function<void(pb::Record&)>& change) { return std::string(replayed(with(records, at, change)).message()); };
  EXPECT_THAT(message([](pb::Record& r) { r.add_decisions("drop of 1"); }), testing::AllOf(HasSubstr("recorded was 'drop of 1'"), HasSubstr("answers 'nothing'")));
  EXPECT_THAT(message([](pb::Record& r) { r.mutable_decisions()->DeleteSubrange(0, 1); }), HasSubstr("this build answers"));
  EXPECT_THAT(message([](pb::Record& r) {
    std::string& text = *r.mutable_decisions(r.decisions_size() - 1);
    text.back() = text.back() == '0' ? '1' : '0';
  }), HasSubstr("event"));
}

// A file may say anything: none of it reaches a check of the node.
TEST(Replay, RecordsThatCannotBeAreRefusedWithTheReason) {
  const std::vector<std::string> records = some_run();
  const struct {
    std::function<void(pb::Record&)> change;  // of a tick that would be the next event
    const char* why;
  } cases[] = {
      {[](pb::Record& r) { r.clear_event(); }, "neither a config nor an event"},
      {[](pb::Record& r) { r.set_node(7); }, "has no config"},
      {[](pb::Record& r) { r.set_now_ns(1); }, "goes back"},
      {[](pb::Record& r) { r.mutable_event()->clear_kind(); }, "unknown kind"},
      {[](pb::Record& r) { r.mutable_event()->mutable_step()->set_step(77); }, "not begun"},
      {[](pb::Record& r) { r.mutable_event()->mutable_step()->add_slices()->mutable_error()->set_code(99); }, "no such status"},
      {[](pb::Record& r) { r.mutable_event()->mutable_weights(); }, "not begun"},
      {[](pb::Record& r) { r.mutable_event()->mutable_packed()->mutable_stages()->set_map_seconds(HUGE_VAL); }, "finite"},
      {[](pb::Record& r) { r.mutable_event()->mutable_progress()->set_progress(NAN); }, "finite"},
      {[](pb::Record& r) { r.mutable_event()->mutable_copied()->set_ok(true); }, "not begun"},
      {[](pb::Record& r) { r.mutable_event()->mutable_message(); }, "message of an unknown kind"},
      {[](pb::Record& r) { r.mutable_event()->mutable_added()->set_costs("{}"); }, ""},
      {[](pb::Record& r) { r.mutable_event()->mutable_added(); }, "does not fit"},
      {[](pb::Record& r) { r.mutable_event()->mutable_cluster()->add_members()->set_role(9); }, "role"},
      {[](pb::Record& r) { r.mutable_config()->set_instance_role(9); }, "instance role"},
      {[](pb::Record& r) { r.mutable_config()->set_gap_stretch(NAN); }, "finite"},
      {[](pb::Record& r) { r.mutable_config(); }, "absurd"},
  };
  pb::Record next;
  next.set_node(1);
  next.set_now_ns(999'999'999'999);
  next.mutable_event()->mutable_tick();
  for (const auto& c : cases) {
    std::vector<std::string> other = records;
    other.push_back(next.SerializeAsString());
    const Status status = replayed(with(other, other.size() - 1, c.change));
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << c.why;
    EXPECT_THAT(std::string(status.message()), HasSubstr(c.why));
  }
  const auto config = [&](auto change) { return std::string(replayed(with({records[0]}, 0, [&](pb::Record& r) { change(*r.mutable_config()); })).message()); };
  EXPECT_THAT(config([](pb::NodeConfig& c) { c.mutable_models(0)->set_weight_bytes(uint64_t{1} << 40); }), HasSubstr("does not fit"));
  EXPECT_THAT(config([](pb::NodeConfig& c) { c.mutable_models(1)->set_model(0); }), HasSubstr("twice"));
  EXPECT_THAT(std::string(replayed({"\x7f"}).message()), HasSubstr("damaged"));
}

std::string file_of(const std::vector<std::string>& records) {
  std::string out(kEventLogHead);
  for (const std::string& record : records) out += framed(record);
  return out;
}

TEST(RecordReader, GivesEachRecordWhateverPiecesTheFileComesIn) {
  const std::vector<std::string> records = {"a", "", std::string(127, 'b'), std::string(128, 'c'), std::string(70'000, 'd')};
  const std::string file = file_of(records);
  for (const size_t piece : {size_t{1}, size_t{3}, size_t{1000}, file.size()}) {
    RecordReader reader;
    std::vector<std::string> read;
    for (size_t at = 0; at < file.size(); at += piece) {
      reader.add(std::string_view(file).substr(at, piece));
      for (auto next = *reader.next(); next; next = *reader.next()) read.emplace_back(*next);
    }
    EXPECT_EQ(read, records) << piece;
    EXPECT_EQ(reader.records(), records.size());
  }
}

TEST(RecordReader, AFileThatIsCutShortEndsWithItsLastWholeRecord) {
  const std::string file = file_of({"first", "second"});
  for (size_t bytes = 0; bytes < file.size(); ++bytes) {
    RecordReader reader;
    reader.add(std::string_view(file).substr(0, bytes));
    uint64_t records = 0;
    for (auto next = *reader.next(); next; next = *reader.next()) ++records;
    EXPECT_EQ(records, bytes < kEventLogHead.size() + 6 ? 0u : 1u) << bytes;
  }
}

TEST(RecordReader, WhatIsNoRecordedRunSaysWhatToDo) {
  const auto why = [](std::string_view file) {
    RecordReader reader;
    reader.add(file);
    return std::string(reader.next().status().message());
  };
  EXPECT_THAT(why(R"({"config":{"duty":1})"), HasSubstr("tools/convert_events.py OLD NEW"));
  EXPECT_THAT(why("shoal events 3\n"), HasSubstr("replay it with the build that recorded it"));
  EXPECT_THAT(why("PK\x03\x04 whatever it is"), HasSubstr("record one with `shoal serve --record-events`"));
  EXPECT_THAT(why(std::string(kEventLogHead) + "\xff\xff\xff\xff\xff\xff"), HasSubstr("longer than can be"));
  EXPECT_THAT(why(std::string(kEventLogHead) + "\xff\xff\xff\xff\x7f"), HasSubstr("longer than can be"));
}

TEST(Replay, SeedsOfTheFuzzerAreJudgedRightly) {
  size_t seeds = 0;
  for (const auto& entry : std::filesystem::directory_iterator(SHOAL_SOURCE_DIR "/tests/corpus/events")) {
    const auto bytes = read_file(entry.path().string(), 1 << 20);
    ASSERT_TRUE(bytes.ok());
    EXPECT_EQ(fuzz::events(*bytes), entry.path().filename().string().starts_with("good")) << entry.path();
    ++seeds;
  }
  EXPECT_GE(seeds, 5u);
}

// A bit that flips anywhere in a file is refused, or shows as another decision, or changes nothing that is decided.
TEST(Replay, DamagedFilesNeverReachACheck) {
  const std::string file = file_of(some_run());
  for (size_t at = 0; at < file.size(); at += 211) {
    std::string other = file;
    other[at] = static_cast<char>(other[at] ^ (1 << (at % 8)));
    fuzz::events(other);
  }
}

}  // namespace
}  // namespace shoal
