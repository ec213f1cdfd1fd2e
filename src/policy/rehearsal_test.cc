#include "policy/courses.h"

#include <gtest/gtest.h>

#include <vector>

namespace shoal {
namespace {

TEST(TokensInTime, WhoIsInTimeStaysSoIfTheyComeFasterThanTheyAreRead) {
  EXPECT_DOUBLE_EQ(tokens_in_time(100, 1, 0.05, 2, 0.1), 100);
  EXPECT_DOUBLE_EQ(tokens_in_time(100, 1, 0.2, 2, 0.1), 11);   // a second ahead, and a tenth lost with each
  EXPECT_DOUBLE_EQ(tokens_in_time(5, 1, 0.2, 2, 0.1), 5);
}

TEST(TokensInTime, WhoIsLateCatchesUpOrDoesNot) {
  EXPECT_DOUBLE_EQ(tokens_in_time(100, 2, 0.05, 1, 0.1), 80);  // a second behind, a twentieth gained with each
  EXPECT_DOUBLE_EQ(tokens_in_time(10, 2, 0.05, 1, 0.1), 0);
  EXPECT_DOUBLE_EQ(tokens_in_time(100, 2, 0.1, 1, 0.1), 0);
  EXPECT_TRUE(promising(100, 2, 0.05, 1, 0.1));
  EXPECT_FALSE(promising(30, 2, 0.05, 1, 0.1));
}

// Beside the prompts of others tokens come more slowly than they are read: the last ones are late unless the first came early enough.
TEST(Chance, IsWholeOnlyIfWhatFallsBehindLaterIsEarlyAtFirst) {
  EXPECT_DOUBLE_EQ(falls_behind(16, 0.4, 0.25, 30), 15 * 0.15);
  EXPECT_EQ(falls_behind(16, 0.4, 0.25, 3), 1.5) << "of what the first one may take, half is left to wait in";
  EXPECT_EQ(falls_behind(16, 0.2, 0.25, 30), 0);
  EXPECT_EQ(chance(16, 1, 0.05, falls_behind(16, 0.4, 0.25, 30), 3, 0.25, 1), Chance::kPart);
  EXPECT_EQ(chance(16, 1, 0.05, falls_behind(16, 0.4, 0.25, 30), 4, 0.25, 1), Chance::kWhole);
}

TEST(Chance, IsWholeAsLongAsTheFirstTokenIsInTime) {
  EXPECT_EQ(chance(100, 1, 0.05, 0, 1.2, 0.1, 1), Chance::kWhole);
  EXPECT_EQ(chance(100, 1, 0.05, 0, 1.05, 0.1, 1), Chance::kPart) << "a step of others may come before";
  EXPECT_EQ(chance(100, 2, 0.05, 0, 1, 0.1, 1), Chance::kPart);
  EXPECT_EQ(chance(30, 2, 0.05, 0, 1, 0.1, 1), Chance::kNone);
  EXPECT_EQ(chance(100, 2, 0.05, 0, 1, 0.1, 0.05), Chance::kWhole) << "nobody is late for its sake";
  EXPECT_EQ(chance(30, 2, 0.05, 0, 1, 0.1, 0.05), Chance::kNone);
}

TEST(Hopeless, IsWhoseTokensWouldNextToAllBeLate) {
  EXPECT_FALSE(hopeless(100, 2, 0.05, 1, 0.1));
  EXPECT_FALSE(promising(30, 2, 0.05, 1, 0.1));
  EXPECT_FALSE(hopeless(30, 2, 0.05, 1, 0.1)) << "a third is on time";
  EXPECT_TRUE(hopeless(22, 2, 0.05, 1, 0.1));
  EXPECT_TRUE(hopeless(100, 2, 0.1, 1, 0.1));
}

TEST(Cohorts, LoseNobody) {
  Cohorts cohorts;
  for (int i = 0; i < 20; ++i) cohorts.add({1, 0.1 * i, 100, i % 2 == 0 ? 0.0 : 0.2});
  double requests = 0, decoding = 0;
  size_t count = 0;
  for (const Cohort& c : cohorts) requests += c.requests, decoding += c.prompt_seconds > 0 ? 0 : c.requests, ++count;
  EXPECT_EQ(count, Cohorts::kMax);  // half of them decode
  EXPECT_DOUBLE_EQ(requests, 20);
  EXPECT_DOUBLE_EQ(decoding, 10);
}

// A step takes 20 ms, an answer has 100 tokens.
RehearsedModel model(uint32_t id, bool resident, double arrivals, double switch_seconds) {
  RehearsedModel m;
  m.model = ModelId(id);
  m.resident = m.here = resident;
  m.switch_seconds = m.return_seconds = switch_seconds;
  m.step_base = 0.02;
  m.step_each = 0.0005;
  m.ttft = 5;
  m.arrivals = arrivals;
  m.prompt_seconds = 0.05;
  m.answer_tokens = 100;
  m.sequences_max = 64;
  m.quota_seconds = 0.5;
  m.cohorts.add({1, 4, 100, 0.05});
  return m;
}

TEST(Cohorts, ThoseAreOneThatAreTheMostAlike) {
  Cohorts cohorts;
  for (int i = 0; i < 100; ++i) cohorts.add({1, 0.1 * i, 16, 0.2});
  double most = 0, first = 100, last = 0;
  for (const Cohort& c : cohorts) most = std::max(most, c.requests), first = std::min(first, c.due), last = std::max(last, c.due);
  EXPECT_LT(most, 50);
  EXPECT_LT(first, 3);
  EXPECT_GT(last, 8);
}

TEST(Cohorts, WhatBecomesOneStaysUnlike) {
  Cohorts all;
  double of_them = 0;
  for (int i = 0; i < 50; ++i) all.add({1, 0, i % 2 == 0 ? 10.0 : 90.0, 0});
  for (const Cohort& c : all) {
    of_them += c.requests * (c.spread * c.spread + (c.left - 50) * (c.left - 50));
  }
  EXPECT_NEAR(of_them, 50 * 40 * 40, 1e-6) << "between and within them";
}

TEST(Cohorts, OfUnlikeAnswersSomeEndSoonAndSomeLate) {
  const Cohort alike{100, 0, 50, 0}, unlike{100, 0, 50, 0, 40}, one{1, 0, 50, 0, 40};
  EXPECT_EQ(alike.given(20), 20);
  EXPECT_EQ(alike.given(80), 50);
  EXPECT_EQ(alike.remaining(60), 0);
  EXPECT_EQ(unlike.given(10), 10) << "all have as many";
  EXPECT_NEAR(unlike.remaining(50), std::exp(-1), 1e-9);
  EXPECT_NEAR(unlike.given(1e4), 50, 1e-9);
  EXPECT_GT(unlike.longest(), 200);
  double sum = 0;  // what is given is what remains, step by step
  for (int step = 0; step < 60; ++step) sum += unlike.remaining(step + 0.5);
  EXPECT_NEAR(sum, unlike.given(60), 0.05);
  EXPECT_EQ(one.given(80), 50) << "one answer has one length";
}

// Half of them are three times as long: a batch that is never empty when its model goes.
TEST(Rehearse, UnlikeAnswersTakeLongerThanAlikeOnesToEnd) {
  RehearsedModel m = model(0, true, 0, 0.5);
  m.cohorts.clear();
  m.cohorts.add({40, 0.5, 100, 0});
  RehearsedModel unlike = m;
  unlike.cohorts.begin()->spread = 90;
  const auto given = [](const RehearsedModel& r, double horizon) {
    const Rehearsed all = rehearse(std::span(&r, 1), {1}, {1, 1}, horizon);
    return all.on_time + all.ahead;
  };
  const double seconds = 100 * m.step_seconds(40);
  EXPECT_LT(given(unlike, seconds), 0.85 * given(m, seconds));
  EXPECT_NEAR(given(unlike, 20 * seconds), given(m, 20 * seconds), 0.02 * given(m, 20 * seconds));
}

TEST(Rehearse, AModelAloneIsOnTimeAsLongAsItKeepsUp) {
  const RehearsedModel easy[] = {model(0, true, 2, 0.2)};
  const Rehearsed little = rehearse(easy, {1}, {1, 1}, 30);
  EXPECT_NEAR(little.on_time, (1 + 2 * 25) * 100, 1500);  // those that come at the end are still under way
  EXPECT_LT(little.lost, 0.01 * little.on_time);
  const RehearsedModel hard[] = {model(0, true, 40, 0.2)};
  EXPECT_GT(rehearse(hard, {1}, {1, 1}, 30).lost, little.on_time);
}

// Of one model that has no time for all who come, if it computes without a break.
double tokens_at_most(const RehearsedModel& m, double seconds) {
  return seconds * m.answer_tokens / (m.prompt_seconds + m.answer_tokens * m.step_seconds(m.sequences_max) / m.sequences_max);
}

TEST(Rehearse, InOverloadNobodyPassesHisLatenessOn) {
  const RehearsedModel m = model(0, true, 40, 1);  // four times as many as it has time for
  const Rehearsed r = rehearse(std::span(&m, 1), {1}, {1, 1}, 60);
  EXPECT_GT(r.on_time + r.ahead, 0.8 * tokens_at_most(m, 60));
}

TEST(Rehearse, HopelessAnswersAreLateForNobodyElse) {
  RehearsedModel m = model(0, true, 0, 1);
  m.step_each = 0.008;
  m.cohorts.clear();
  m.cohorts.add({8, 4, 100, 0.05});
  const double alone = rehearse(std::span(&m, 1), {}, {1, 1}, 20).on_time;
  EXPECT_NEAR(alone, 800, 1);
  m.passed_over = 20;
  m.cohorts.add({20, -60, 100, 0});  // a step with them takes 0.24 s, and a reader 0.1
  EXPECT_NEAR(rehearse(std::span(&m, 1), {}, {1, 1}, 20).on_time, alone, 1);
}

TEST(Rehearse, ShortAnswersMakeRoomForOthersAtOnce) {
  RehearsedModel m = model(0, true, 100, 1);
  m.answer_tokens = 16, m.prompt_seconds = 0.005, m.sequences_max = 8;
  const Rehearsed r = rehearse(std::span(&m, 1), {1}, {1, 1}, 60);
  EXPECT_GT(r.on_time + r.ahead, 0.9 * tokens_at_most(m, 60));
  EXPECT_LT(r.on_time + r.ahead, 1.1 * tokens_at_most(m, 60));
}

// What an answer takes is little beside a turn of seconds: within it others begin as room comes free, and decode beside prompts.
TEST(Rehearse, OfShortAnswersALongTurnCarriesAsManyAsTheDeviceHasTimeFor) {
  RehearsedModel models[] = {model(0, true, 47, 0.16), model(1, false, 46, 0.13)};
  for (RehearsedModel& m : models) {
    m.ttft = 30, m.tbt = 0.25;
    m.step_base = 0.0177, m.step_each = 0.0001;
    m.prompt_seconds = 0.0102, m.answer_tokens = 15.5, m.sequences_max = 256, m.quota_seconds = 0.3;
    m.cohorts = {};
    m.cohorts.add({237, 15, 6, 0});
    m.cohorts.add({300, 20, 12, 0.0102});
    m.cohorts.add({300, 26, 12, 0.0102});
  }
  const auto given = [&](double stretch) {
    const Rehearsed r = rehearse(models, {1}, {2, stretch}, 60);
    return r.on_time + r.ahead;
  };
  const auto turns = [&](double stretch) { return 1 - 0.29 / (0.29 + 0.6 * stretch); };  // of the time
  for (const double stretch : {4, 8, 16, 32}) EXPECT_GT(given(stretch), 0.85 * turns(stretch) * tokens_at_most(models[0], 60)) << stretch;
}

TEST(Rehearse, EveryCourseSharesOutWhatIsDue) {
  const RehearsedModel models[] = {model(0, true, 2, 1), model(1, false, 2, 1), model(2, false, 2, 1)};
  const auto due = [&](const Course& course) {
    const Rehearsed r = rehearse(models, {1}, course, 30);
    return r.on_time + r.lost;
  };
  const double turns = due({3, 1});
  for (const Course& course : {Course{1, 1}, Course{3, 8}, Course{2, 2}}) EXPECT_NEAR(due(course), turns, 0.15 * turns) << course.served << " x" << course.stretch;
}

TEST(Rehearse, TheShortestTurnsAreRehearsedToTheEndOfTheHorizon) {
  std::vector<RehearsedModel> models;
  for (uint32_t id = 0; id < 12; ++id) {
    models.push_back(model(id, id < 3, 0.2, 0.02));
    models.back().quota_seconds = 0.01;
  }
  const auto due = [&](const Course& course) {
    const Rehearsed r = rehearse(models, {3}, course, 120);
    return r.on_time + r.lost;
  };
  EXPECT_NEAR(due({12, 1}), due({3, 1}), 0.1 * due({3, 1}));
}

// What comes while a model is away is more than it may leave behind at the end of a turn, and the device has time for all of it.
TEST(Rehearse, TurnsThatServeWhoWaitsAndThenEndLoseNobody) {
  RehearsedModel models[] = {model(0, true, 50, 0.4), model(1, false, 28, 0.3)};
  for (RehearsedModel& m : models) {
    m.ttft = 30;
    m.tbt = 0.25;
    m.step_base = 0.0175;
    m.step_each = 0.0001;
    m.prompt_seconds = 0.01;
    m.answer_tokens = 15;
    m.sequences_max = 256;
    m.quota_seconds = 0.4;
    m.cohorts = {};
  }
  const Rehearsed gated = rehearse(models, {1}, {2, 0, true}, 60), turns = rehearse(models, {1}, {2, 1}, 60), alone = rehearse(models, {1}, {1, 1}, 60);
  EXPECT_LT(gated.lost, 0.1 * gated.on_time);
  EXPECT_GT(gated.on_time, 1.1 * std::max(turns.on_time, alone.on_time));
}

// A device that has time for all gains nothing by giving one of them tokens that are due long afterwards.
TEST(Rehearse, WhatIsGivenAheadIsNoReasonToNeglectOthers) {
  RehearsedModel models[] = {model(0, true, 0, 0.5), model(1, false, 0, 0.5)};
  for (RehearsedModel& m : models) {
    m.cohorts = {};
    m.cohorts.add({4, 4, 2000, 0.05});
  }
  EXPECT_GT(rehearse(models, {1}, {2, 1}, 30).on_time, 1.4 * rehearse(models, {1}, {1, 1}, 30).on_time);
  EXPECT_EQ(best_course(models, {1}, 30, {}, {}).served, 2u);
}

TEST(Rehearse, TurnsOfAnyLengthAreComparedOverTheWholeHorizon) {
  RehearsedModel models[] = {model(0, true, 0.5, 0.02), model(1, false, 0.5, 0.02)};
  for (RehearsedModel& m : models) m.quota_seconds = 0.1;  // so quick that nothing is lost by it
  const double often = rehearse(models, {1}, {2, 1}, 120).on_time, seldom = rehearse(models, {1}, {2, 8}, 120).on_time;
  EXPECT_NEAR(often, seldom, 0.1 * seldom);
}

TEST(Rehearse, WhatMoreCountsWeighsMore) {
  RehearsedModel heavy[] = {model(0, true, 2, 0.2)};
  const double once = rehearse(heavy, {1}, {1, 1}, 30).on_time;
  heavy[0].weight = 4;
  EXPECT_NEAR(rehearse(heavy, {1}, {1, 1}, 30).on_time, 4 * once, 1e-6);
}

// Of a fluid of them somebody always waits.
TEST(Rehearse, WhereFewModelsHaveRareRequestsMostWaitForNobody) {
  RehearsedModel models[] = {model(0, true, 0.2, 0.5), model(1, false, 0.2, 0.5)};
  for (RehearsedModel& m : models) m.ttft = 1, m.answer_tokens = 16, m.weight_pages = 600, m.cohorts = {};
  constexpr double kPages = 1000;
  const RehearsedDevice few{1, kPages, kPages, 2}, many{1, kPages, kPages, 40};
  const auto share = [&](const RehearsedDevice& device) {
    const Rehearsed r = rehearse(models, device, {2, 0, true}, 60);
    return r.on_time / (r.on_time + r.lost);
  };
  EXPECT_GT(share(few), 0.75);  // 0.79 if they come at 64 other times
  EXPECT_GT(share(few), share(many) + 0.1);
  const Rehearsed r = rehearse(models, few, {2, 0, true}, 60);
  EXPECT_NEAR(r.on_time + r.lost, 2 * 0.2 * 59 * 16, 0.1 * 2 * 0.2 * 59 * 16);
}

// Which model has which number is no reason for anything.
TEST(Rehearse, WhenRareRequestsComeIsNotKnown) {
  double least = 1e9, most = 0;
  for (uint32_t id = 0; id < 20; ++id) {
    RehearsedModel models[] = {model(id, true, 0.2, 0.5), model(id + 1, false, 0.2, 0.5)};
    for (RehearsedModel& m : models) m.ttft = 1, m.answer_tokens = 16, m.cohorts = {};
    const double on_time = rehearse(models, {1, 1e9, 0, 2}, {1, 1}, 12).on_time;
    least = std::min(least, on_time), most = std::max(most, on_time);
  }
  EXPECT_LT(most, 1.3 * least);
}

TEST(BestCourse, WhereThereIsTimeEverybodyHasTurns) {
  const RehearsedModel models[] = {model(0, true, 0.3, 0.2), model(1, false, 0.3, 0.2), model(2, false, 0.3, 0.2)};
  EXPECT_EQ(best_course(models, {1}, 30, {}, {}), (Course{3, 1}));
  EXPECT_EQ(best_course(models, {1}, 30, {1, 1}, {}), (Course{3, 1}));  // and comes back to it
  EXPECT_EQ(best_course(models, {3}, 30, {}, {}), (Course{3, 1}));
  EXPECT_TRUE(keeps_everybody(models, {1}, 30, {}));
}

TEST(BestCourse, WhenSwitchesEatTheTimeAFewAreServed) {
  const RehearsedModel models[] = {model(0, true, 8, 4), model(1, false, 8, 4), model(2, false, 8, 4)};
  const Course course = best_course(models, {1}, 60, {}, {});
  EXPECT_TRUE(course.served == 1 || course.stretch > 1) << course.served << " x" << course.stretch;
  const double turns = rehearse(models, {1}, {3, 1}, 60).on_time, chosen = rehearse(models, {1}, course, 60).on_time;
  EXPECT_GT(chosen, 1.5 * turns);
  EXPECT_FALSE(keeps_everybody(models, {1}, 60, {}));
}

TEST(BestCourse, WhoIsHereStaysBesideThoseThatAreAsGood) {
  const RehearsedModel models[] = {model(0, false, 8, 4), model(1, true, 8, 4), model(2, false, 8, 4)};
  EXPECT_EQ(best_course(models, {1}, 60, {1, 1}, {}), (Course{1, 1, false, true}));
  RehearsedModel favoured[] = {model(0, false, 8, 4), model(1, true, 8, 4), model(2, false, 8, 4)};
  favoured[0].first = true;
  EXPECT_EQ(best_course(favoured, {1}, 60, {1, 1}, {}).here, false) << "in the order that is";
}

TEST(BestCourse, WhatIsKeptGoesForLittle) {
  const RehearsedModel models[] = {model(0, true, 8, 4), model(1, false, 8, 4), model(2, false, 8, 4)};
  const Course best = best_course(models, {1}, 60, {}, {});
  EXPECT_EQ(best_course(models, {1}, 60, best, {}), best);
  EXPECT_EQ(best_course(models, {1}, 60, {3, 1}, {.gain_min = 1e9}), (Course{3, 1}));
}

// Three models that are here need three steps for a token of each; only one of them can be read at that pace.
TEST(BestCourse, WhereStepsOfAllAreTooSlowFewerAreServedThanAreHere) {
  RehearsedModel models[] = {model(0, true, 2, 0.1), model(1, true, 2, 0.1), model(2, true, 2, 0.1)};
  for (RehearsedModel& m : models) m.step_base = 0.08;
  const Course course = best_course(models, {3}, 30, {}, {});
  EXPECT_LT(course.served, 3u);
  EXPECT_GT(rehearse(models, {3}, course, 30).on_time, 1.2 * rehearse(models, {3}, {3, 1}, 30).on_time);
}

// A first load takes too long for anybody to be in time after it, so that all rehearsals of turns are one of the model that is here. Served in
// turns, the others would come all the same: their next loads would be shorter.
TEST(BestCourse, TurnsInWhichNobodyComesAreNone) {
  std::vector<RehearsedModel> models;
  for (uint32_t i = 0; i < 4; ++i) {
    models.push_back(model(i, i == 0, i == 0 ? 0.2 : 0.02, 3));
    RehearsedModel& m = models.back();
    m.return_seconds = 1.5, m.ttft = 1, m.tbt = 0.04, m.step_base = 0.006, m.quota_seconds = 4, m.cohorts = {};
  }
  models[1].cohorts.add({1, 1, 100, 0.05});
  EXPECT_TRUE(worth_a_switch(models[1]));
  const RehearsedDevice device{.rooms = 1, .models = 16};
  const Rehearsed wide = rehearse(models, device, {4, 1}, 20);
  EXPECT_EQ(wide.switches, 0);
  EXPECT_GT(wide.lost, 0.1 * wide.on_time);
  EXPECT_EQ(best_course(models, device, 20, {4, 1}, {}), (Course{1, 1}));
  for (RehearsedModel& m : models) m.switch_seconds = 1.5;
  EXPECT_GT(rehearse(models, device, {4, 1}, 20).switches, 0);
}

// A guest has sent another away for a short turn that it was owed. A course of those that are here is one of that other.
TEST(BestCourse, AGuestIsNotOneOfThoseThatAreHere) {
  RehearsedModel models[] = {model(0, true, 4, 0.2), model(1, false, 4, 0.2), model(2, false, 4, 0.2)};
  models[0].here = false;
  models[2].here = true;
  put_here_first(models);
  EXPECT_EQ(models[0].model, ModelId(2));
  EXPECT_EQ(models[1].model, ModelId(0));
}

// A short answer that waits for its model's next turn between two tokens is late; one that is waited for is not.
TEST(Rehearse, AnswersThatEndBeforeTheirModelGoesAreOnTime) {
  RehearsedModel models[] = {model(0, true, 8, 3), model(1, false, 8, 3)};
  for (RehearsedModel& m : models) {
    m.ttft = 20;
    m.tbt = 0.05;
    m.step_base = 0.01;
    m.answer_tokens = 16;
    m.prompt_seconds = 0.06;
    m.quota_seconds = 2;
  }
  EXPECT_GT(rehearse(models, {1}, {2, 2, true}, 60).on_time, rehearse(models, {1}, {2, 2}, 60).on_time);
}

// Turns of two models, KV of each of which takes all that the weights leave.
TEST(Rehearse, KvThatHasNoPlaceWhileItsModelIsAwayIsComputedAnew) {
  RehearsedModel models[] = {model(0, true, 0.5, 0.2), model(1, false, 0.5, 0.2)};
  for (RehearsedModel& m : models) {
    m.weight_pages = 100;
    m.kv_pages = 12;
    m.prompt_seconds = m.again_seconds = 0.2;
    m.sequences_max = 15;
  }
  const double ample = rehearse(models, {1}, {2, 1}, 30).on_time;
  const double hosted = rehearse(models, {1, 160, 1000}, {2, 1}, 30).on_time, short_of_it = rehearse(models, {1, 160, 0}, {2, 1}, 30).on_time;
  EXPECT_NEAR(hosted, ample, 0.01 * ample);
  EXPECT_LT(short_of_it, 0.9 * hosted);
  EXPECT_NEAR(rehearse(models, {1, 160, 0}, {1, 1}, 30).on_time, rehearse(models, {1}, {1, 1}, 30).on_time, 1);  // one alone has its place
}

// Two small ones have place at once, and a large one needs the places of both: none of its KV is given up for weights of one that has
// nothing to do.
TEST(Rehearse, WhoIsLargerThanThoseThatAreHereTakesThePlacesOfSeveral) {
  RehearsedModel models[] = {model(0, false, 2, 0.2), model(1, true, 0, 0.2), model(2, true, 0, 0.2)};
  for (RehearsedModel& m : models) m.weight_pages = 60, m.kv_pages = 1;
  models[0].weight_pages = 130;
  models[1].cohorts = models[2].cohorts = {};
  const double ample = rehearse(models, {1}, {1, 1}, 30).on_time;
  EXPECT_NEAR(rehearse(models, {2, 170, 0}, {1, 1}, 30).on_time, ample, 0.02 * ample);
  models[1].stays = true;  // and there is no way
  EXPECT_EQ(rehearse(models, {2, 170, 0}, {1, 1}, 30).on_time, 0);
}

// Answers of two models that are here, whose KV is a quarter more than has place beside both.
TEST(Rehearse, KvThatHasNoPlaceBesideTheWeightsTakesTurnsFromTheHostTier) {
  RehearsedModel models[] = {model(0, true, 0, 0.2), model(1, true, 0, 0.2)};
  for (RehearsedModel& m : models) {
    m.weight_pages = 100, m.kv_pages = 5, m.again_seconds = 2;
    m.cohorts = {};
    m.cohorts.add({20, 1, 100, 0});
  }
  const double ample = rehearse(models, {2}, {2, 1}, 20).on_time, hosted = rehearse(models, {2, 360, 1000}, {2, 1}, 20).on_time;
  EXPECT_NEAR(hosted, ample, 0.02 * ample);
  EXPECT_LT(rehearse(models, {2, 360, 0}, {2, 1}, 20).on_time, 0.95 * hosted);
  EXPECT_LT(rehearse(models, {2, 220, 1000}, {2, 1}, 20).on_time, 0.5 * ample);  // an eighth of them at once is slower than they are read
}

// Where three small ones fit, three do, whatever number of the first ones does.
TEST(Rehearse, AsManyAreThereAtOnceAsThereArePagesFor) {
  RehearsedModel models[] = {model(0, true, 0.3, 1), model(1, true, 0.3, 1), model(2, false, 0.3, 1)};
  for (RehearsedModel& m : models) m.weight_pages = 30, m.kv_pages = 0.1;
  const Rehearsed fit = rehearse(models, {1, 110, 0}, {3, 1}, 30), turns = rehearse(models, {1, 50, 0}, {3, 1}, 30);
  EXPECT_LT(fit.lost, 0.01 * fit.on_time);
  EXPECT_GT(turns.lost, 0.1 * turns.on_time);
}

// Two that wait too long together for either to be on time, and each of which could keep the device busy.
TEST(BestCourse, WhereMoreIsWantedThanTheDeviceHasTimeForNobodyPaysForSwitches) {
  RehearsedModel models[] = {model(0, true, 6, 1.5), model(1, false, 2, 1.5)};
  for (RehearsedModel& m : models) {
    m.ttft = 30;
    m.tbt = 0.25;
    m.prompt_seconds = 0.16;
    m.answer_tokens = 16;
    m.cohorts = {};
    m.cohorts.add({30 * m.arrivals, 15, 16, 0.16});
  }
  EXPECT_GT(load(models[0], 60) + load(models[1], 60), 1.5);
  EXPECT_EQ(best_course(models, {1}, 60, {1, 1}, {}).served, 1u);
  for (RehearsedModel& m : models) m.arrivals = 1, m.cohorts = {}, m.cohorts.add({5, 15, 16, 0.16});
  EXPECT_LT(load(models[0], 60) + load(models[1], 60), 1);
  EXPECT_EQ(best_course(models, {1}, 60, {1, 1}, {}).served, 2u);
}

TEST(WorthASwitch, NotIfEverythingWouldBeTooLate) {
  RehearsedModel m = model(0, false, 0, 3);
  EXPECT_TRUE(worth_a_switch(m));
  m.cohorts = {};
  m.cohorts.add({1, 1, 10, 0.05});  // due in a second, and the weights come in three
  EXPECT_FALSE(worth_a_switch(m));
  m.cohorts.add({1, 1, 1000, 0.05});  // a long answer catches up
  EXPECT_TRUE(worth_a_switch(m));
}

TEST(WorthASwitch, AFirstOneIfLaterOnesWouldBeInTime) {
  RehearsedModel m = model(0, false, 0, 3);
  m.cohorts = {};
  m.cohorts.add({1, 1, 10, 0.05});
  m.return_seconds = 0.5;
  EXPECT_TRUE(worth_a_switch(m));
  m.return_seconds = 2;
  EXPECT_FALSE(worth_a_switch(m));
}

TEST(LateWhenAway, ThoseWhoComeAndCannotWaitAsLong) {
  RehearsedModel m = model(0, true, 2, 1);  // 50 ms of a prompt, 5 s to the first token, 100 ms between, 100 tokens
  m.arrivals = 1e-3, m.cohorts = {};
  EXPECT_EQ(late_when_away(m, 4.9), 0);
  // Who comes in the first second is late, by half a second in the mean.
  const double drain = 1 - load(m, 60);
  EXPECT_NEAR(late_when_away(m, 5.95), 1e-3 * 1 * 0.5 / 0.1 / drain, 1e-12);
  m.weight = 3;
  EXPECT_NEAR(late_when_away(m, 5.95), 3e-3 * 5 / drain, 1e-12);
  EXPECT_NEAR(late_when_away(m, 1004.95), 3e-3 * (990 * 100 + 10 * 50) / drain, 1e-6) << "no more than the whole answer";
}

// A model that takes half of the device: what came while it was away takes as long again, and who comes then waits for it.
TEST(LateWhenAway, ThoseWhoComeBeforeTheFirstOnesAreComputed) {
  RehearsedModel m = model(0, true, 2, 1);
  m.prompt_seconds = 0.25, m.step_base = m.step_each = 0;
  EXPECT_NEAR(late_when_away(m, 4.75), 0, 1e-9);
  EXPECT_NEAR(late_when_away(m, 5.75), 2 * (1 / 0.5) * 0.5 / 0.1, 1e-9);
  m.arrivals = 8;
  EXPECT_LT(late_when_away(m, 5.75), 8 * (1 / 0.05) * 0.5 / 0.1) << "it never gets over it: some while counts";
}

TEST(PaysWhileIdle, ForAsManyOfThoseWhoAreLateAsThereIsTimeFor) {
  RehearsedModel late = model(0, false, 0, 0), usual = model(1, true, 0.1, 0);
  late.cohorts = usual.cohorts = {};
  late.switch_seconds = usual.switch_seconds = 1, usual.arrivals = 0.1;
  const auto pays = [&](double requests) { return pays_while_idle(late, requests, usual, std::vector{usual, late}); };
  usual.ttft = 8;
  EXPECT_TRUE(pays(1)) << "back before anybody could be late";
  EXPECT_FALSE(pays(0));
  usual.ttft = 1;
  EXPECT_FALSE(pays(1));
  EXPECT_TRUE(pays(40)) << "as long, but for many";
  late.prompt_seconds = 0.5;
  EXPECT_FALSE(pays(40)) << "their prompts take as long each";
  usual.ttft = 8;
  EXPECT_TRUE(pays(40)) << "fewer of them pay";
}

// Its first load is too long for anybody to be in time after it, the next ones are not.
TEST(PaysWhileIdle, ForTheNextOneOfAModelThatWasNeverHere) {
  RehearsedModel late = model(0, false, 0, 0), usual = model(1, true, 0.1, 0);
  late.cohorts = usual.cohorts = {};
  usual.switch_seconds = 0.5, usual.arrivals = 0.05, usual.ttft = late.ttft = 1;
  late.switch_seconds = late.return_seconds = 20;
  const auto pays = [&] { return pays_while_idle(late, 1, usual, std::vector{usual, late}); };
  EXPECT_FALSE(pays());
  late.return_seconds = 0.5;
  EXPECT_TRUE(pays());
  usual.arrivals = 5;
  EXPECT_FALSE(pays()) << "many others would be late for it";
}

// Those who come for it are on time once it is here, and others who are away wait the longer.
TEST(PaysWhileIdle, ForThoseWhoComeForItAndNotForOthers) {
  RehearsedModel late = model(0, false, 2, 0), usual = model(1, true, 0.5, 0), other = model(2, false, 2, 0);
  for (RehearsedModel* m : {&late, &usual, &other}) m->cohorts = {}, m->switch_seconds = 6, m->ttft = 1;
  EXPECT_TRUE(pays_while_idle(late, 1, usual, std::vector{usual, late}));
  EXPECT_FALSE(pays_while_idle(late, 1, usual, std::vector{usual, late, other, other, other}));
  late.arrivals = 0;
  EXPECT_FALSE(pays_while_idle(late, 1, usual, std::vector{usual, late}));
}

TEST(Yield, ThosePeopleWantMoreAndThoseWhoAreHereComeFirst) {
  EXPECT_GT(yield(model(0, true, 2, 1), 30), yield(model(0, false, 2, 1), 30));
  EXPECT_GT(yield(model(0, true, 4, 1), 30), yield(model(0, true, 1, 1), 30));
}

}  // namespace
}  // namespace shoal
