// Visits of models that were in the dark for too long, on one device with a body that takes time.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "roles/served_set.h"
#include "roles/test_body.h"

namespace shoal {
namespace {

// One model has far more requests than the device can serve; whoever asks another waits as long as is promised, not until they end.
TEST(NodeVisits, AFloodOfOneModelDoesNotStarveTheReaderOfAnother) {
  std::vector<NodeModel> models = {model(0), model(1)};
  for (NodeModel& m : models) m.pooling.slo = {milliseconds(500), milliseconds(25)};
  NodeConfig c = config(11, models);
  c.turns.dark_max = seconds(5);
  Body body(c);
  std::vector<RequestId> flood;
  for (int i = 0; i < 200; ++i) flood.push_back(body.submit(0, 100));
  body.run(TimePoint(seconds(1)));
  const RequestId reader = body.submit(1, 100);
  body.run();
  EXPECT_LT(body.answer(reader).first, TimePoint(seconds(1 + 5 + 2)));
  TimePoint last{};
  for (const RequestId id : flood) {
    EXPECT_EQ(body.answer(id).tokens, 100u);
    last = std::max(last, body.answer(id).last);
  }
  EXPECT_GT(last, TimePoint(seconds(20))) << "no flood";
  EXPECT_EQ(body.answer(reader).tokens, 100u);
}

// One model always has requests that can be on time, more than the device can do. Of several others, that are late, each has a turn within the
// bound; without it they wait until the flood is over.
TEST(NodeVisits, SeveralInTheDarkHaveTheirTurnsOneAfterTheOtherWithinTheBound) {
  constexpr uint32_t kReaders = 3;
  const auto last_of = [&](Duration dark_max) {
    std::vector<NodeModel> models;
    for (uint32_t m = 0; m <= kReaders; ++m) models.push_back(model(m)), models.back().pooling.slo = {milliseconds(500), milliseconds(25)};
    NodeConfig c = config(11, models);
    c.turns.dark_max = dark_max;
    Body body(c);
    std::vector<RequestId> readers;
    for (int tenth = 0; tenth < 1800; ++tenth) {
      for (int i = 0; i < 4; ++i) body.submit(0, 20);
      if (tenth == 10) {
        for (uint32_t m = 1; m <= kReaders; ++m) readers.push_back(body.submit(m, 20));
      }
      body.run(TimePoint(milliseconds(100 * (tenth + 1))));
    }
    body.run();
    TimePoint last{};
    for (const RequestId id : readers) last = std::max(last, body.answer(id).first);
    return to_seconds(last - TimePoint(seconds(1)));
  };
  TurnOptions turns;
  turns.dark_max = seconds(5);
  const double bound = dark_seconds_most(turns, kReaders, 0.2);
  EXPECT_LT(last_of(turns.dark_max), bound);
  EXPECT_GT(last_of(std::chrono::hours(1)), bound);
}

// Of two models the first has more requests than the device can do, for so many tenths of a second; those who ask the second are late from
// the first token on.
struct Flooded {
  explicit Flooded(Duration load_time) : Flooded(configured(), load_time) {}
  Flooded(const NodeConfig& config, Duration load_time) : body(config) { body.load_time = load_time; }
  static NodeConfig configured() {
    std::vector<NodeModel> models = {model(0), model(1)};
    models[0].pooling.slo = {milliseconds(500), milliseconds(25)};
    models[1].pooling.slo = {milliseconds(100), milliseconds(15)};
    NodeConfig c = config(11, models);  // room for one
    c.adopt_weights = false;            // the first would be back at once
    c.turns.dark_max = seconds(5);
    return c;
  }
  // The second one's, while those who ask the first one do.
  static NodeConfig unsaid_second() {
    NodeConfig c = unsaid(2, seconds(20));
    c.models[0].pooling.ttft_loads = 0;
    return c;
  }
  void flood(int tenths) {
    for (const TimePoint until = body.now() + milliseconds(100 * tenths); body.now() < until;) {
      for (int i = 0; i < 4; ++i) body.submit(0, 20);
      body.run(body.now() + milliseconds(100));
    }
  }
  std::vector<RequestId> ask(int times) {  // the second one
    std::vector<RequestId> asked;
    for (int i = 0; i < times; ++i) asked.push_back(body.submit(1, 100));
    return asked;
  }
  Body body;
};

TEST(NodeVisits, WhoWasInTheDarkHasAFortiethOfTheTimeAtMost) {
  Flooded f(milliseconds(200));
  f.flood(10);
  f.ask(41);
  const size_t before = f.body.steps.size();
  f.flood(1800);
  const auto visits = std::count(f.body.loads.begin(), f.body.loads.end(), 1u);
  const auto steps = std::count(f.body.steps.begin() + static_cast<ptrdiff_t>(before), f.body.steps.end(), 1u);
  EXPECT_GE(visits, 4) << "one in 36 s";
  EXPECT_GT(steps, 20 * visits) << "half a second each";
  EXPECT_LT(steps * 40, static_cast<ptrdiff_t>(f.body.steps.size() - before));
}

TEST(NodeVisits, WhereASwitchTakesLongOneWaitsInProportionLonger) {
  Flooded f(seconds(2));
  f.flood(100);
  const TimePoint asked = f.body.now();
  const RequestId reader = f.ask(41).front();
  f.flood(600);
  const double visit = 2 + 2 + 2, waited = to_seconds(f.body.answer(reader).first - asked);
  EXPECT_GT(waited, 5 * visit / 1.5);
  EXPECT_LT(waited, 5 * visit / 1.5 + visit);
}

// Then what is late is worth as much as what is not, and half of an answer is worth little.
TEST(NodeVisits, OfWhomNobodySaidByWhenAVisitLastsUntilThoseWhoAskedHaveTheirAnswers) {
  Flooded f(Flooded::unsaid_second(), milliseconds(20));
  f.flood(200);
  const std::vector<RequestId> asked = f.ask(12);
  f.flood(800);
  EXPECT_EQ(std::count(f.body.loads.begin(), f.body.loads.end(), 1u), 1);
  for (const RequestId id : asked) EXPECT_EQ(f.body.answer(id).tokens, 100u) << id;
}

// An hour without requests from the middle of one on was none for the others, and nobody pays for it afterwards.
TEST(NodeVisits, AVisitThatEndedLongAgoHoldsUpNobody) {
  Flooded f(Flooded::unsaid_second(), milliseconds(20));
  f.flood(200);
  const std::vector<RequestId> asked = f.ask(12);
  while (f.body.answer(asked.front()).tokens == 0) f.flood(1);
  const uint64_t last = f.body.submit(0, 4).sequence;
  for (uint64_t id = 1; id <= last; ++id) {
    if (std::find(asked.begin(), asked.end(), RequestId(id)) == asked.end()) f.body.cancel(RequestId(id));  // who is left is alone
  }
  while (f.body.now() < TimePoint(std::chrono::hours(1))) f.body.run(f.body.now() + seconds(1));
  f.flood(600);
  const TimePoint then = f.body.now();
  const std::vector<RequestId> again = f.ask(12);
  f.flood(500);
  for (const RequestId id : again) {
    EXPECT_EQ(f.body.answer(id).tokens, 100u) << id;
    EXPECT_LT(f.body.answer(id).first - then, seconds(40)) << id;
  }
}

// Its load takes ten times as long as expected: it stays as long as it would have.
TEST(NodeVisits, AVisitOfWhoComesLateIsAsLong) {
  Flooded f(milliseconds(200));
  f.flood(10);
  f.body.submit(1, 4);
  f.flood(200);
  f.body.load_time = seconds(2);
  f.ask(41);
  const size_t before = f.body.steps.size();
  f.flood(400);
  const auto visits = std::count(f.body.loads.begin(), f.body.loads.end(), 1u) - 1;
  EXPECT_GT(std::count(f.body.steps.begin() + static_cast<ptrdiff_t>(before), f.body.steps.end(), 1u), 20 * visits);
  EXPECT_GE(visits, 1);
}

// For model 0 or one of the others, whose first tokens may take half as long as a load.
NodeConfig room_for_one(uint32_t others) {
  std::vector<NodeModel> models;
  for (uint32_t m = 0; m <= others; ++m) models.push_back(model(m)), models.back().pooling.slo = {milliseconds(100), milliseconds(50)};
  NodeConfig c = config(9, models);
  c.adopt_weights = false;  // they would be back at once
  return c;
}

// The device is idle most of the time, but whoever of the others comes makes the next ones of the first model late.
TEST(NodeVisits, ThoseInTheDarkComeNoMoreOftenWhileTheDeviceIsIdle) {
  constexpr uint32_t kOthers = 6;
  NodeConfig c = room_for_one(kOthers);
  c.turns.dark_max = seconds(1);
  Body body(c);
  std::map<uint32_t, std::vector<std::pair<RequestId, TimePoint>>> asked;
  for (uint32_t i = 0; i < 600; ++i) {
    asked[0].emplace_back(body.submit(0, 4), body.now());
    if (i % 50 == 10) {
      for (uint32_t m = 1; m <= kOthers; ++m) asked[m].emplace_back(body.submit(m, 4), body.now());
    }
    body.run(body.now() + milliseconds(200));
  }
  const auto in_time = std::count_if(asked[0].begin(), asked[0].end(), [&](const auto& at) { return body.answer(at.first).first - at.second <= milliseconds(100); });
  EXPECT_GT(static_cast<double>(in_time), 0.9 * static_cast<double>(asked[0].size()));
  for (uint32_t m = 1; m <= kOthers; ++m) EXPECT_GT(body.answer(asked[m].front().first).tokens, 0u) << "model " << m;
}

// Whoever is asked for the first time is away, and cannot be on time: it waits, like those that did before, and does not have the device
// because nobody decided yet.
TEST(NodeVisits, WhoeverIsAskedForFirstIsNotServedUntilThatPays) {
  constexpr uint32_t kOthers = 40;
  Body body(room_for_one(kOthers));
  std::vector<std::pair<RequestId, TimePoint>> asked;
  for (uint32_t i = 0; i < 300; ++i) {
    asked.emplace_back(body.submit(0, 4), body.now());
    body.run(body.now() + milliseconds(150));
    if (i % 7 == 6) body.submit(1 + i / 7 % kOthers, 4);
    body.run(body.now() + milliseconds(50));
  }
  const auto late = std::count_if(asked.begin(), asked.end(), [&](const auto& at) { return body.answer(at.first).first - at.second > milliseconds(100); });
  EXPECT_LT(late, 15);
}

}  // namespace
}  // namespace shoal
