#include "transport/loopback.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

namespace shoal {
namespace {

TEST(Loopback, MessagesArriveInOrderWithTheirSender) {
  LoopbackNetwork network;
  std::vector<std::string> got;
  const auto a = network.connect(NodeId(1), [](NodeId, std::string) { return true; });
  const auto b = network.connect(NodeId(2), [&](NodeId from, std::string bytes) {
    EXPECT_EQ(from, NodeId(1));
    got.push_back(bytes);
    return true;
  });
  ASSERT_TRUE(a->send(NodeId(2), "one").ok());
  ASSERT_TRUE(a->send(NodeId(2), "two").ok());
  EXPECT_EQ(got, (std::vector<std::string>{"one", "two"}));
}

TEST(Loopback, APeerThatIsGoneIsUnavailable) {
  LoopbackNetwork network;
  const auto a = network.connect(NodeId(1), [](NodeId, std::string) { return true; });
  network.connect(NodeId(2), [](NodeId, std::string) { return true; }).reset();
  EXPECT_EQ(a->send(NodeId(2), "x").code(), StatusCode::kUnavailable);
  EXPECT_EQ(a->send(NodeId(3), "x").code(), StatusCode::kUnavailable);
}

TEST(Loopback, ASenderHearsThatTheOtherSideHasNoRoom) {
  LoopbackNetwork network;
  const auto a = network.connect(NodeId(1), [](NodeId, std::string) { return true; });
  const auto full = network.connect(NodeId(2), [](NodeId, std::string) { return false; });
  EXPECT_EQ(a->send(NodeId(2), "x").code(), StatusCode::kResourceExhausted);
}

TEST(Loopback, NoHandlerRunsAfterItsEndpointIsGone) {
  LoopbackNetwork network;
  const auto sender = network.connect(NodeId(1), [](NodeId, std::string) { return true; });
  std::atomic<bool> stop{false};
  std::thread flood([&] {
    while (!stop) (void)sender->send(NodeId(2), "x");
  });
  for (int i = 0; i < 200; ++i) {
    auto alive = std::make_unique<std::atomic<bool>>(true);
    auto endpoint = network.connect(NodeId(2), [flag = alive.get()](NodeId, std::string) {
      EXPECT_TRUE(*flag);
      return true;
    });
    endpoint.reset();
    *alive = false;
  }
  stop = true;
  flood.join();
}

}  // namespace
}  // namespace shoal
