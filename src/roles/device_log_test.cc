#include "roles/device_log.h"

#include <gtest/gtest.h>

namespace shoal {
namespace {

using std::chrono::milliseconds;
TimePoint at(int ms) { return TimePoint(milliseconds(ms)); }
constexpr ModelId kA{0}, kB{1};

void step(DeviceLog& log, ModelId model, DeviceAct act, uint64_t tokens, TimePoint begin, TimePoint end) {
  log.at(begin);
  log.step_begun(model, act, tokens);
  log.at(end);
  log.step_ended(model);
}

TEST(DeviceLog, StepsOfOneModelAndKindAreOneTurn) {
  DeviceLog log;
  step(log, kA, DeviceAct::kPrefill, 100, at(0), at(10));
  step(log, kA, DeviceAct::kDecode, 2, at(10), at(12));
  step(log, kA, DeviceAct::kDecode, 2, at(13), at(15));
  step(log, kB, DeviceAct::kDecode, 1, at(15), at(16));
  EXPECT_EQ(log.take(), (std::vector<DeviceEvent>{{DeviceAct::kPrefill, kA, at(0), at(10), 1, 100},
                                                  {DeviceAct::kDecode, kA, at(10), at(15), 2, 4},
                                                  {DeviceAct::kDecode, kB, at(15), at(16), 1, 1}}));
  EXPECT_TRUE(log.take().empty());
}

TEST(DeviceLog, APauseOrAReportEndsATurn) {
  DeviceLog log;
  step(log, kA, DeviceAct::kDecode, 1, at(0), at(1));
  step(log, kA, DeviceAct::kDecode, 1, at(50), at(51));
  EXPECT_EQ(log.take().size(), 2u);
  step(log, kA, DeviceAct::kDecode, 1, at(51), at(52));
  EXPECT_EQ(log.take().size(), 1u);
}

TEST(DeviceLog, CopiesOverlapAndDropsAreInstants) {
  DeviceLog log;
  log.copy_begun(kA, 1, true, 4096);
  log.at(at(1));
  log.copy_begun(kA, 2, false, 8192);
  log.at(at(2));
  log.dropped(kB);
  log.at(at(3));
  log.copy_ended(kA, 2);
  log.at(at(4));
  log.copy_ended(kA, 1);
  log.copy_ended(kA, 7);  // nobody knows it
  EXPECT_EQ(log.take(), (std::vector<DeviceEvent>{{DeviceAct::kDrop, kB, at(2), at(2)},
                                                  {DeviceAct::kKvIn, kA, at(1), at(3), 0, 8192},
                                                  {DeviceAct::kKvOut, kA, at(0), at(4), 0, 4096}}));
  EXPECT_EQ(log.bytes_out(), 4096u);
  EXPECT_EQ(log.bytes_in(), 8192u);
}

TEST(DeviceLog, WhatNobodyTakesIsBounded) {
  DeviceLog log;
  for (int i = 0; i < 3000; ++i) {
    log.at(at(i));
    log.dropped(kA);
  }
  const auto events = log.take();
  EXPECT_EQ(events.size(), DeviceLog::kEventsMax);
  EXPECT_EQ(events.back().begin, at(2999));
}

}  // namespace
}  // namespace shoal
