// Who may wait for the device, and how long, with a body that takes time.
#include <gtest/gtest.h>

#include "roles/test_body.h"

namespace shoal {
namespace {

TEST(NodeWaits, AWaitThatWouldBeTooLongIsRefusedAtOnceAndToldWhenToComeBack) {
  NodeModel impatient = model(1);
  impatient.pooling.max_wait = milliseconds(100);  // a load takes 200
  Body body(config(30, {model(0), impatient}));
  const RequestId refused = body.submit(1, 4);
  EXPECT_EQ(body.answer(refused).finish, FinishReason::kError);
  EXPECT_NE(body.answer(refused).error.find("max_wait"), std::string::npos);
  EXPECT_NEAR(to_seconds(body.answer(refused).retry_after), 0.1, 1e-3);
  body.give(MessageFrom{kGateway, SetResident{ModelId(1), true}});
  body.run();
  const RequestId taken = body.submit(1, 4);  // it is there now
  body.run();
  EXPECT_EQ(body.answer(taken).tokens, 4u);
}

// Of all nodes that it was placed on, one after the other.
TEST(NodeWaits, AWaitIsBoundedFromTheArrival) {
  NodeModel impatient = model(1);
  impatient.pooling.max_wait = milliseconds(300);  // a load takes 200
  Body body(config(30, {model(0), impatient}));
  const RequestId late = body.submit(1, 4, 8, Duration::max(), milliseconds(150));
  EXPECT_NE(body.answer(late).error.find("after 0.35 s or more; its limit (max_wait) is 0.3 s"), std::string::npos) << body.answer(late).error;
  EXPECT_EQ(body.answer(late).retry_after, Duration(0));
  const RequestId taken = body.submit(1, 4, 8, Duration::max(), milliseconds(50));
  body.run();
  EXPECT_EQ(body.answer(taken).tokens, 4u);
}

TEST(NodeWaits, WhoCouldNotBeginInTimeEndsAtTheBound) {
  NodeModel impatient = model(1);
  impatient.pooling.max_wait = milliseconds(500);
  NodeConfig c = config(11, {model(0), impatient});
  c.scheduling = Scheduling::kRequest;  // lets the other answer end first, whatever was predicted
  Body body(c);
  body.submit(0, 200);
  body.run(TimePoint(seconds(1)));
  const TimePoint asked = body.now();
  const RequestId late = body.submit(1, 4);
  const RequestId placed_again = body.submit(1, 4, 8, Duration::max(), milliseconds(200));
  body.run();
  EXPECT_EQ(body.answer(late).finish, FinishReason::kError);
  EXPECT_LE(body.answer(late).last - asked, milliseconds(500 + 20));
  EXPECT_EQ(body.answer(placed_again).finish, FinishReason::kError);
  EXPECT_LE(body.answer(placed_again).last - asked, milliseconds(300 + 20));
  EXPECT_TRUE(body.node().idle());
}

TEST(NodeWaits, OfThoseThatWaitTheHigherPriorityComesFirst) {
  NodeModel high = model(2, 8);
  high.pooling.priority = 1;
  Body body(config(16, {model(0, 8), model(1, 8), high}));
  const RequestId first = body.submit(0, 4);
  body.submit(1, 4);
  body.submit(2, 4);
  body.run();
  EXPECT_EQ(body.answer(first).tokens, 4u);
  EXPECT_EQ(body.loads, (std::vector<uint32_t>{0, 2, 1}));
}

TEST(NodeWaits, InAFullQueueThoseWhoAreLateMakeRoomForThoseWhoAreNot) {
  NodeConfig c = config(30, {model(0)});
  c.limits.sequences_max = 1;
  c.waiting_max = 3;
  Body body(c);
  body.submit(0, 8);
  body.run();  // how long an answer is is known
  body.submit(0, 200);
  body.run(body.now() + milliseconds(100));
  const auto wait = [&](Duration waited) { return body.submit(0, 8, 8, Duration::max(), waited); };
  const RequestId first = wait(seconds(60)), second = wait(seconds(50)), third = wait(seconds(40));
  EXPECT_FALSE(body.answer(third).finish);
  const RequestId late = wait(seconds(30));
  EXPECT_EQ(body.answer(late).finish, FinishReason::kError) << "there are three of them before it";
  const RequestId in_time = wait(seconds(0));
  EXPECT_EQ(body.answer(third).finish, FinishReason::kError);
  EXPECT_NE(body.answer(third).error.find("the queue of this model is full (3 requests)"), std::string::npos) << body.answer(third).error;
  body.run();
  for (const RequestId id : {first, second, in_time}) EXPECT_EQ(body.answer(id).tokens, 8u);
  EXPECT_LT(body.answer(in_time).first, body.answer(first).first);
  EXPECT_TRUE(body.node().idle());
}

}  // namespace
}  // namespace shoal
