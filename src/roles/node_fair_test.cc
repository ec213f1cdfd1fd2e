// What people see who ask one by one for models of which nobody said by when a first token is due, on one device with a body that takes time.
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>

#include "roles/test_body.h"

namespace shoal {
namespace {

using std::chrono::minutes;

// The longest that each person waited for a first token, and that anybody then waited for the last one.
struct Seen {
  std::vector<Duration> waits;
  Duration reading{0};
  uint64_t answers = 0;
  std::vector<uint64_t> first_tokens, in_time;  // of each model
  Duration longest_wait() const { return *std::max_element(waits.begin(), waits.end()); }
};

// Each person asks for the next of the models, so long from his last answer; they come one by one.
struct People {
  std::vector<Duration> pauses;
  Duration apart{0};
  Duration load{0};  // the disk may be much slower than was believed
  Duration time = minutes(60);
  uint32_t tokens = 100;
};

Seen seen_by(const People& people, const NodeConfig& config) {
  Body body(config);
  body.load_time = people.load;
  struct Person {
    std::optional<RequestId> id;
    TimePoint next{}, asked{};
  };
  std::vector<Person> persons(people.pauses.size());
  for (size_t i = 0; i < persons.size(); ++i) persons[i].next = TimePoint(people.apart * i);
  const std::vector<NodeModel>& models = config.models;
  Seen seen{std::vector<Duration>(persons.size()), {}, 0, std::vector<uint64_t>(models.size()), std::vector<uint64_t>(models.size())};
  while (body.now() < TimePoint(people.time)) {
    body.run(body.now() + milliseconds(100));
    for (uint32_t i = 0; i < persons.size(); ++i) {
      Person& p = persons[i];
      const size_t model = i % models.size();
      if (p.id && body.answer(*p.id).finish) {
        ++seen.answers, ++seen.first_tokens[model];
        seen.in_time[model] += body.answer(*p.id).first - p.asked <= models[model].pooling.slo.ttft;
        seen.reading = std::max(seen.reading, body.answer(*p.id).last - body.answer(*p.id).first);
        p.id.reset(), p.next = body.now() + people.pauses[i];
      }
      if (!p.id && body.now() >= p.next) p.id = body.submit(static_cast<uint32_t>(model), people.tokens), p.asked = body.now();
      if (!p.id) continue;
      const Body::Answer& answer = body.answer(*p.id);
      seen.waits[i] = std::max(seen.waits[i], (answer.tokens > 0 ? answer.first : body.now()) - p.asked);
      if (answer.tokens > 0) seen.reading = std::max(seen.reading, body.now() - answer.first);
    }
  }
  return seen;
}

// Each with a model of his own.
std::vector<Duration> longest_waits(Duration load, const std::vector<Duration>& pauses) {
  return seen_by({.pauses = pauses, .load = load}, unsaid(static_cast<uint32_t>(pauses.size()))).waits;
}

// Each comes back after one to ten seconds.
People crowd(uint32_t people, Duration load) {
  People crowd{.apart = milliseconds(100), .load = load, .time = minutes(20)};
  for (uint32_t i = 0; i < people; ++i) crowd.pauses.push_back(milliseconds(1000 + i * 7919 % 9000));
  return crowd;
}

NodeConfig by_request(NodeConfig config) {
  config.scheduling = Scheduling::kRequest;
  return config;
}

// Each waits for the loads of the others, and his own, and their answers.
TEST(NodeFair, ADeadlineThatNobodySaidIsSomeLoads) {
  for (const Duration load : {seconds(5), seconds(20), seconds(60)}) {
    for (const Duration wait : longest_waits(load, {seconds(30), seconds(60), seconds(120)})) EXPECT_LT(wait, 3 * load + seconds(20)) << to_seconds(wait);
  }
}

// The device is never idle. A load that was begun while nobody else waited is not for nothing.
TEST(NodeFair, WhoHasComeMayAnswerThoughOthersCameMeanwhile) {
  for (const Duration wait : longest_waits(seconds(20), {seconds(30), seconds(60), seconds(120), seconds(60), seconds(240)})) EXPECT_LT(wait, seconds(200)) << to_seconds(wait);
}

TEST(NodeFair, NobodyWaitsForMuchLongerThanTheLoadsOfTheOthers) {
  const auto most = [](const std::vector<Duration>& waits) { return to_seconds(*std::max_element(waits.begin(), waits.end())); };
  EXPECT_LT(most(longest_waits(seconds(60), {seconds(30), seconds(60), seconds(120), seconds(60), seconds(240)})), 1200);
  EXPECT_LT(most(longest_waits(seconds(20), std::vector<Duration>(10, seconds(60)))), 1000);
  People people;
  for (int i = 0; i < 48; ++i) people.pauses.push_back(seconds(5 + i * 7 % 30));
  for (const Duration load : {Duration(milliseconds(20)), Duration(seconds(1)), Duration(seconds(5))}) {
    people.load = load;
    EXPECT_LT(seen_by(people, unsaid(3)).longest_wait(), seconds(500)) << to_seconds(load);
  }
}

// One after the other in turns, and no answer is left in its middle for the others: as many answers as of models that stay until theirs have ended.
TEST(NodeFair, InAnOverloadModelsAnswerWhoHasComeAndGo) {
  for (const Duration load : {Duration(milliseconds(20)), Duration(seconds(1)), Duration(seconds(5))}) {
    SCOPED_TRACE(to_seconds(load));
    const People people = crowd(48, load);
    const Seen seen = seen_by(people, unsaid(3));
    EXPECT_LT(seen.reading, seconds(10));
    EXPECT_LT(seen.longest_wait(), seconds(25) + 6 * load);
    EXPECT_GE(static_cast<double>(seen.answers), 0.98 * static_cast<double>(seen_by(people, by_request(unsaid(3))).answers));
  }
}

TEST(NodeFair, OfOneModelWhoComesFirstIsFirst) {
  const Seen seen = seen_by(crowd(96, milliseconds(20)), unsaid(1));
  EXPECT_LT(seen.reading, seconds(6));
  EXPECT_LT(seen.longest_wait(), seconds(40)) << "96 people, 2.4 answers a second";
}

// Where turns between tokens keep everybody at the pace he reads at, nobody waits for the others' answers.
TEST(NodeFair, LongAnswersOfFewAreReadSideBySide) {
  NodeConfig config = unsaid(3);
  config.pages = 404;
  config.host_pages = 1000;
  for (NodeModel& m : config.models) m.weight_bytes = 300 * kPageBytes, m.max_model_len = 2048;
  People people = crowd(12, seconds(1));
  people.tokens = 1000;
  EXPECT_LT(seen_by(people, config).longest_wait(), seconds(10));
  EXPECT_GT(seen_by(people, by_request(config)).longest_wait(), seconds(30)) << "no need of it";
}

// More is asked of the one than there is time for, without end: its turn ends when its part of what others may be in the dark is over.
TEST(NodeFair, AFloodOfOneDoesNotHoldItsTurn) {
  Body body(unsaid(2, seconds(20)));
  body.load_time = milliseconds(20);
  RequestId reader{};
  TimePoint asked{};
  for (int tenth = 0; tenth < 600; ++tenth) {
    for (int i = 0; i < 4; ++i) body.submit(0, 20);
    if (tenth == 200) reader = body.submit(1, 20), asked = body.now();
    body.run(body.now() + milliseconds(100));
  }
  EXPECT_LT(body.answer(reader).first - asked, seconds(12));
  EXPECT_EQ(body.answer(reader).tokens, 20u);
}

// Then deadlines are worth something again.
TEST(NodeFair, WhoSaysByWhenIsOnTimeBesideACrowdThatDoesNot) {
  NodeConfig config = unsaid(2);
  config.models[1].pooling.ttft_loads = 0;
  config.models[1].pooling.slo = {milliseconds(500), milliseconds(25)};
  Body body(config);
  body.load_time = milliseconds(20);
  std::vector<RequestId> others;
  for (int i = 0; i < 60; ++i) others.push_back(body.submit(0, 100));
  int in_time = 0;
  for (int i = 0; i < 20; ++i) {
    const TimePoint asked = body.now();
    const RequestId id = body.submit(1, 4);
    body.run(body.now() + seconds(3));
    in_time += body.answer(id).tokens > 0 && body.answer(id).first - asked <= milliseconds(500);
  }
  EXPECT_GE(in_time, 18);
  body.run();
  for (const RequestId id : others) EXPECT_EQ(body.answer(id).tokens, 100u) << id;
}

// The first ones have `said`.
NodeConfig some_said(uint32_t of_models, uint32_t said, Duration ttft) {
  NodeConfig config = unsaid(of_models);
  for (uint32_t i = 0; i < said; ++i) config.models[i].pooling.ttft_loads = 0, config.models[i].pooling.slo.ttft = ttft;
  return config;
}

// Of six models, of which so many said by when, each with four people: longest waits of those who did, and of those who did not.
std::pair<Duration, Duration> longest_waits_of(const Seen& seen, uint32_t said) {
  std::pair<Duration, Duration> longest{};
  for (size_t i = 0; i < seen.waits.size(); ++i) {
    Duration& of = i % 6 < said ? longest.first : longest.second;
    of = std::max(of, seen.waits[i]);
  }
  return longest;
}

// More is asked for than there is time for.
TEST(NodeFair, WhereMostDidNotSayByWhenWhoDidIsOnTimeAndTheOthersAreServedInTurn) {
  const Seen seen = seen_by(crowd(24, seconds(1)), some_said(6, 1, seconds(8)));
  EXPECT_GT(static_cast<double>(seen.in_time[0]), 0.95 * static_cast<double>(seen.first_tokens[0]));
  EXPECT_LT(seen.longest_wait(), seconds(60));
}

// A switch takes longer than they have.
TEST(NodeFair, WhoSaidWhatCannotBeIsServedLikeThoseWhoDidNot) {
  const auto [said, others] = longest_waits_of(seen_by(crowd(24, seconds(5)), some_said(6, 1, seconds(2))), 1);
  EXPECT_LT(said, seconds(60));
  EXPECT_LT(others, seconds(80));
}

// Nobody of whom it was not said by when is held up for long by those who are late, whose visits are rare.
TEST(NodeFair, WhereMostSaidByWhenTheOthersAreNotForgotten) {
  for (const Duration load : {seconds(1), seconds(5)}) {
    SCOPED_TRACE(to_seconds(load));
    const Seen seen = seen_by(crowd(24, load), some_said(6, 5, seconds(2)));
    EXPECT_LT(longest_waits_of(seen, 5).second, seconds(150));
    uint64_t in_time = 0, all = 0;
    for (int i = 0; i < 5; ++i) in_time += seen.in_time[i], all += seen.first_tokens[i];
    EXPECT_GT(2 * in_time, all);
  }
}

// Who did and who did not are as many, and now these are more, now those: who was late in between stands where he came.
TEST(NodeFair, WhereHalfSaidByWhenNobodyIsForgotten) {
  for (const Duration ttft : {seconds(2), seconds(8)}) {
    SCOPED_TRACE(to_seconds(ttft));
    EXPECT_LT(seen_by(crowd(24, seconds(5)), some_said(6, 3, ttft)).longest_wait(), seconds(150));
  }
}

}  // namespace
}  // namespace shoal
