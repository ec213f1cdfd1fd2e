// What a switch takes, stage by stage, and requests that end in the middle of one.
#include <gtest/gtest.h>

#include "roles/test_body.h"

namespace shoal {
namespace {

SwitchRecord only(const std::vector<SwitchRecord>& records, uint32_t model) {
  std::vector<SwitchRecord> found;
  for (const SwitchRecord& r : records) {
    if (r.model == ModelId(model)) found.push_back(r);
  }
  EXPECT_EQ(found.size(), 1u) << "of model " << model;
  return found.empty() ? SwitchRecord{} : found.front();
}

TEST(SwitchRecords, ASwitchThatARequestWaitsForIsTold) {
  Body body(config(20, {model(0)}));
  body.run(body.now() + seconds(1));
  const TimePoint asked = body.now();
  body.submit(0, 3);
  body.run();
  const SwitchRecord record = only(body.switches, 0);
  EXPECT_EQ(record.end, SwitchEnd::kServed);
  EXPECT_EQ(record.asked, asked);
  EXPECT_EQ(record.begun, asked);
  EXPECT_EQ(record.ready, asked + milliseconds(200));
  EXPECT_EQ(record.first_step, record.ready);
  EXPECT_DOUBLE_EQ(record.visible_seconds, 0.2);
  EXPECT_FALSE(record.hidden());
  EXPECT_DOUBLE_EQ(record.stages.repack_seconds, 0.2);
  EXPECT_TRUE(record.dropped.empty());
}

TEST(SwitchRecords, WhatStepsOfAnotherModelFillIsNotVisible) {
  Body body(config(40, {model(0), model(1)}));
  body.submit(0, 200);
  body.run(body.now() + seconds(1));
  body.submit(1, 5);
  body.run();
  const SwitchRecord record = only(body.switches, 1);
  EXPECT_EQ(record.end, SwitchEnd::kServed);
  EXPECT_LT(record.visible_seconds, 0.001);
  EXPECT_TRUE(record.hidden());
  EXPECT_GE(record.first_step - record.begun, milliseconds(200));
}

TEST(SwitchRecords, WhoWentForItAndTheWayOfItsKvAreTold) {
  NodeConfig c = config(11, {model(0), model(1)});
  c.host_pages = 40;
  Body body(c);
  body.submit(0, 100, 120);
  body.submit(1, 100, 120);
  body.run();
  ASSERT_GT(body.copies, 0u);
  double swapped = 0;
  size_t dropping = 0;
  for (const SwitchRecord& r : body.switches) {
    EXPECT_LE(r.asked, r.planned);
    EXPECT_LE(r.planned, r.begun);
    EXPECT_LE(r.begun, r.ready);
    EXPECT_LE(r.ready, r.first_step);
    EXPECT_LE(r.visible_seconds, to_seconds(r.first_step - r.planned) + 1e-9);
    swapped += r.swap_in_seconds;
    dropping += r.dropped == std::vector{ModelId(1 - r.model.value)};
  }
  EXPECT_GT(swapped, 0.0);
  EXPECT_GE(dropping, 2u);
  EXPECT_EQ(body.switches.size(), body.loads.size());
}

TEST(SwitchRecords, AFailedLoadAndOneThatNobodyWaitsForAnyMoreAreTold) {
  Body body(config(20, {model(0), model(1)}));
  body.load_status[0] = data_loss("the file vanished");
  body.submit(0, 3);
  body.run();
  EXPECT_EQ(only(body.switches, 0).end, SwitchEnd::kFailed);
  body.give(MessageFrom{kGateway, SetResident{ModelId(1), true}});
  body.run();
  const SwitchRecord asked_for = only(body.switches, 1);
  EXPECT_EQ(asked_for.end, SwitchEnd::kUnused);
  EXPECT_EQ(asked_for.visible_seconds, 0);
  EXPECT_EQ(asked_for.first_step, kForever);
}

}  // namespace
}  // namespace shoal
