// Who is admitted next, by what can still become of those that wait.
#include "engine/waiting_line.h"

#include <gtest/gtest.h>

#include <vector>

#include "engine/test_harness.h"

namespace shoal {
namespace {

TEST(WaitingLine, WhoCannotBeOnTimeAnyMoreStandsBehindThoseWhoCan) {
  using std::chrono::seconds;
  Harness h(32, {.limits = {.sequences_max = 1}});
  Engine& engine = h.engine();
  const Prospects prospects{{seconds(1), std::chrono::milliseconds(100)}, 0.02, {1e-4}, 8};
  const TimePoint now = TimePoint(seconds(60));
  const auto came = [](TimePoint at) { return [at](Request& r) { r.arrival = at; }; };
  ASSERT_TRUE(h.submit(1, 20, 4, came(TimePoint(seconds(50)))).ok());
  ASSERT_TRUE(h.submit(2, 20, 4, came(TimePoint(seconds(55)))).ok());
  ASSERT_TRUE(h.submit(3, 20, 4, came(now)).ok());
  engine.line().sort_out(prospects, now);
  engine.check();
  EXPECT_EQ(engine.line().late(), 2u);
  EXPECT_EQ(engine.waiting(), 3u);
  EXPECT_EQ(engine.demand(prospects.slo, now).slack, seconds(1));  // of the one that can be
  EXPECT_EQ(engine.demand(prospects.slo, now).promising, 1u);
  engine.line().admit_late(false);
  while (h.step()) {
  }
  EXPECT_FALSE(engine.has(RequestId(3)));
  EXPECT_TRUE(engine.has(RequestId(1)) && engine.has(RequestId(2)));
  EXPECT_FALSE(engine.runnable());
  engine.line().admit_late(true);
  EXPECT_TRUE(engine.runnable());
  ASSERT_TRUE(engine.cancel(RequestId(2)));
  while (h.step()) {
  }
  EXPECT_FALSE(engine.has_work());
}

TEST(WaitingLine, LateOnesMayBeFirst) {
  using std::chrono::seconds;
  Harness h(32, {.limits = {.sequences_max = 1}});
  Engine& engine = h.engine();
  const TimePoint now(seconds(60));
  for (const auto& [id, came] : {std::pair(1, now), {2, TimePoint(seconds(50))}, {3, TimePoint(seconds(40))}}) {
    ASSERT_TRUE(h.submit(id, 20, 4, [came = came](Request& r) { r.arrival = came; }).ok());
  }
  engine.line().sort_out({{seconds(1), std::chrono::milliseconds(50)}, 0.05, {1e-4}, 4}, now);
  ASSERT_EQ(engine.line().late(), 2u);
  engine.line().admit_late(false);
  engine.line().late_first(true);
  EXPECT_TRUE(engine.runnable());
  const auto order = [&] {
    std::vector<uint64_t> ids;
    for (const Sequence* s : engine.line().next(1, now, 8)) ids.push_back(s->request->id.sequence);
    return ids;
  };
  EXPECT_EQ(order(), (std::vector<uint64_t>{2, 3, 1}));
  engine.line().late_first(false);
  EXPECT_EQ(order(), (std::vector<uint64_t>{1}));
  EXPECT_TRUE(engine.has_work(TimePoint(seconds(40))));
  EXPECT_FALSE(engine.has_work(TimePoint(seconds(39))));
}

TEST(WaitingLine, TheFirstAreLookedAtAtAnyTimeAndThoseBehindThemNowAndThen) {
  using std::chrono::milliseconds;
  Harness h(32, {.limits = {.sequences_max = 1}});
  const WaitingLine& line = h.engine().line();
  const Prospects prospects{{milliseconds(1000), milliseconds(100)}, 0.05, {1e-4}, 40};
  const auto submit = [&](uint64_t id, Duration arrival) { return h.submit(id, 20, 40, [&](Request& r) { r.arrival = TimePoint(arrival); }); };
  ASSERT_TRUE(submit(1, milliseconds(5000)).ok());  // comes late to the line, as one that was tried elsewhere first
  ASSERT_TRUE(submit(2, milliseconds(0)).ok());
  h.engine().line().sort_out(prospects, TimePoint(milliseconds(500)));
  EXPECT_EQ(line.late(), 0u);
  h.engine().line().sort_out(prospects, TimePoint(milliseconds(4999)));
  EXPECT_EQ(line.late(), 1u) << "behind one that is not";
  ASSERT_TRUE(submit(3, milliseconds(0)).ok());
  h.engine().line().sort_out(prospects, TimePoint(milliseconds(5050)));
  EXPECT_EQ(line.late(), 1u);
  h.engine().line().sort_out(prospects, TimePoint(milliseconds(5099)));
  EXPECT_EQ(line.late(), 2u);
  h.engine().line().sort_out(prospects, TimePoint(milliseconds(20'000)));
  EXPECT_EQ(line.late(), 3u);
}

TEST(WaitingLine, APlaceInAFullQueueIsForOneThatCanBeOnTime) {
  using std::chrono::seconds;
  Harness h(32, {.limits = {.sequences_max = 1}, .waiting_max = 3});
  Engine& engine = h.engine();
  const Prospects prospects{{seconds(1), std::chrono::milliseconds(100)}, 0.02, {1e-4}, 8};
  const TimePoint now = TimePoint(seconds(60));
  const auto submit = [&](uint64_t id, TimePoint arrival) { return h.submit(id, 20, 4, [&](Request& r) { r.arrival = arrival; }); };
  for (uint64_t id = 1; id <= 3; ++id) ASSERT_TRUE(submit(id, TimePoint(seconds(50))).ok());
  EXPECT_EQ(submit(4, now).code(), StatusCode::kResourceExhausted) << "as far as is known, all can be on time";
  engine.line().sort_out(prospects, now);
  EXPECT_EQ(engine.line().surplus(), std::nullopt);
  for (uint64_t id = 4; id <= 6; ++id) {
    ASSERT_TRUE(submit(id, now).ok());
    ASSERT_EQ(engine.line().surplus(), RequestId(7 - id)) << "the last of those that are late";
    EXPECT_TRUE(engine.cancel(*engine.line().surplus()));
    EXPECT_EQ(engine.line().surplus(), std::nullopt);
    engine.check();
  }
  EXPECT_EQ(submit(7, now).code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(engine.waiting(), 3u);
}

TEST(Prospects, HowLongAnAnswerIsIsWhatItMayBeWhereAllAre) {
  Prospects p;
  p.answer_tokens = 100;
  EXPECT_EQ(p.left_in_all(0, 400), 100) << "all end before";
  EXPECT_EQ(p.left_in_all(60, 400), 40);
  EXPECT_EQ(p.left_in_all(0, 30), 30);
  p.filled = 1, p.filled_tokens = 100;
  EXPECT_EQ(p.left_in_all(0, 30), 30);
  EXPECT_EQ(p.left_in_all(0, 250), 250);
  EXPECT_EQ(p.left_in_all(240, 250), 10);
  EXPECT_EQ(p.left_in_all(0, 4096), 400) << "none was seen that is nearly as long";
  // Those that end before have 60 tokens then.
  p.filled = 0.5, p.filled_tokens = 140;
  EXPECT_EQ(p.left_in_all(0, 200), 0.5 * 200 + 0.5 * 60);
  EXPECT_EQ(p.left_in_all(0, 40), 40);
}

// Six of 0.4 s each: one by one, all but the first three are late in part. And one that comes meanwhile.
std::vector<uint64_t> begun_in_overload(double token_seconds, double pace_seconds = 0, bool fair = false) {
  using std::chrono::milliseconds;
  Harness h(64, {.limits = {.sequences_max = 1}});
  Prospects prospects{{std::chrono::seconds(1), milliseconds(100)}, 0.02, {1e-4}, 40, token_seconds, pace_seconds};
  prospects.fair = fair;
  for (uint64_t i = 1; i <= 6; ++i) EXPECT_TRUE(h.submit(i, 20, 40).ok());
  EXPECT_TRUE(h.submit(7, 20, 40, [](Request& r) { r.arrival = TimePoint(milliseconds(700)); }).ok());
  std::vector<uint64_t> begun;
  for (TimePoint now{}; h.engine().has_work(); now += milliseconds(10)) {
    h.engine().line().sort_out(prospects, now);
    if (!h.step()) continue;
    const uint64_t id = h.last().slices.front().request.sequence;
    if (begun.empty() || begun.back() != id) begun.push_back(id);
  }
  return begun;
}

TEST(WaitingLine, InOverloadNobodyPassesHisLatenessOn) {
  EXPECT_EQ(begun_in_overload(0.01), (std::vector<uint64_t>{1, 2, 3, 7, 4, 5, 6}));
}

TEST(WaitingLine, WhoWouldFallBehindLaterStandsBehindWhoHasTimeForIt) {
  EXPECT_EQ(begun_in_overload(0.01, 0.11), (std::vector<uint64_t>{1, 2, 7, 3, 4, 5, 6})) << "39 tokens fall behind by 0.39 s";
  EXPECT_EQ(begun_in_overload(0.01, 10), (std::vector<uint64_t>{1, 7, 2, 3, 4, 5, 6})) << "half of the time to the first token is kept at most";
}

TEST(WaitingLine, WhereAllThatWaitTakeLittleTheFirstDeadlineIsNext) {
  EXPECT_EQ(begun_in_overload(0), (std::vector<uint64_t>{1, 2, 3, 4, 5, 6, 7}));
}

TEST(WaitingLine, WhereNobodySaidByWhenWhoComesFirstIsFirst) {
  EXPECT_EQ(begun_in_overload(0.01, 0.11, true), (std::vector<uint64_t>{1, 2, 3, 4, 5, 6, 7}));
}

// The first came a minute ago, and is late.
void make_one_late(Harness& h, const Prospects& prospects) {
  ASSERT_TRUE(h.submit(1, 20, 4, [](Request& r) { r.arrival = TimePoint(-std::chrono::seconds(60)); }).ok());
  ASSERT_TRUE(h.submit(2, 20, 4).ok());
  h.engine().line().sort_out(prospects, TimePoint());
  ASSERT_EQ(h.engine().line().late(), 1u);
}

TEST(WaitingLine, WhoStoodBehindOthersIsBeforeThemOnceNobodySaysByWhen) {
  Harness h(32, {.limits = {.sequences_max = 1}});
  Prospects prospects{{std::chrono::seconds(1), std::chrono::milliseconds(100)}, 0.02, {1e-4}, 8};
  make_one_late(h, prospects);
  h.engine().line().admit_late(false);
  prospects.fair = true;
  EXPECT_EQ(h.engine().demand(prospects.slo, TimePoint()).slack, std::chrono::seconds(1)) << "of the other";
  h.engine().line().sort_out(prospects, TimePoint());
  EXPECT_EQ(h.engine().line().late(), 0u);
  EXPECT_EQ(h.engine().line().came_by(TimePoint(-std::chrono::seconds(60))), 1u);
  EXPECT_EQ(h.engine().demand(prospects.slo, TimePoint()).slack, -std::chrono::seconds(59)) << "nor does its model stand behind others";
  ASSERT_TRUE(h.step());
  EXPECT_EQ(h.last().slices.front().request, RequestId(1));
}

TEST(WaitingLine, WhoIsLateForTooLongIsTakenNowAndThen) {
  using std::chrono::seconds;
  Harness h(32, {.limits = {.sequences_max = 1}, .late_wait = seconds(1), .late_every = 1});
  make_one_late(h, {{seconds(1), std::chrono::milliseconds(100)}, 0.02, {1e-4}, 8});
  h.engine().line().admit_late(false);
  ASSERT_TRUE(h.step());
  EXPECT_EQ(h.last().slices.front().request, RequestId(1));
}

}  // namespace
}  // namespace shoal
