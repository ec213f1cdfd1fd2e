#include "gateway/work_lanes.h"

#include <sys/resource.h>

#include <future>
#include <vector>

#include "boost/asio/post.hpp"
#include "gtest/gtest.h"

namespace shoal {
namespace {

constexpr uint64_t kSmall = 1000, kMiddle = 4 << 20, kLarge = 30 << 20;

// Keeps a lane busy until `release` is set.
std::future<void> occupy(WorkLanes& lanes, uint64_t body_bytes, std::shared_future<void> release) {
  auto running = std::make_shared<std::promise<void>>();
  boost::asio::post(lanes.lane(body_bytes), [running, release] {
    running->set_value();
    release.wait();
  });
  return running->get_future();
}

TEST(WorkLanesTest, LargeBodiesHoldUpNoSmallerOnes) {
  WorkLanes lanes(2);
  std::promise<void> release;
  const std::shared_future<void> released = release.get_future().share();
  std::vector<std::future<void>> large;
  for (int i = 0; i < 10; ++i) large.push_back(occupy(lanes, kLarge, released));
  large[0].wait();
  occupy(lanes, kMiddle, released).wait();
  std::promise<void> small;
  boost::asio::post(lanes.lane(kSmall), [&] { small.set_value(); });
  small.get_future().wait();  // would wait for ever behind the others
  EXPECT_EQ(large[1].wait_for(std::chrono::seconds(0)), std::future_status::timeout) << "one large body at a time";
  release.set_value();
  lanes.join();
}

TEST(WorkLanesTest, TheLargerTheBodiesTheMoreTheirThreadGivesWay) {
  WorkLanes lanes(1);
  std::vector<int> nice;
  for (const uint64_t bytes : {kSmall, kMiddle, kLarge}) {
    std::promise<int> value;
    boost::asio::post(lanes.lane(bytes), [&] { value.set_value(::getpriority(PRIO_PROCESS, 0)); });
    nice.push_back(value.get_future().get());
  }
  constexpr int kNiceMax = 19;
  for (size_t i = 1; i < nice.size(); ++i) EXPECT_TRUE(nice[i] > nice[i - 1] || nice[i] == kNiceMax) << i;
  lanes.join();
}

}  // namespace
}  // namespace shoal
