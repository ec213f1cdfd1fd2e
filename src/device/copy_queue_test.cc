#include "device/copy_queue.h"

#include <gtest/gtest.h>

#include <future>
#include <vector>

#include "device/cpu_device.h"

namespace shoal {
namespace {

constexpr uint64_t kPiece = 4096;

struct Bytes {
  std::vector<std::byte> from = std::vector<std::byte>(8 * kPiece, std::byte{7}), to = std::vector<std::byte>(8 * kPiece);
  CopyJob job(CopyLane lane, std::function<void()> done) {
    CopyJob job{lane, {}, std::move(done)};
    for (size_t i = 0; i < 8; ++i) job.pieces.push_back({host_address(&to[i * kPiece]), host_address(&from[i * kPiece]), kPiece});
    return job;
  }
};

TEST(CopyQueue, TheMoreUrgentLaneGoesFirstAndEachInItsOrder) {
  Bytes bytes;
  std::promise<void> begun, asked, done;
  std::vector<int> order;
  CopyQueue queue(CpuDevice::at<std::byte>);
  const auto job = [&](int number, CopyLane lane) {
    queue.start(bytes.job(lane, [&, number] {
      order.push_back(number);
      if (order.size() == 6) done.set_value();
    }));
  };
  queue.start(bytes.job(CopyLane::kKvOut, [&] {
    begun.set_value();
    asked.get_future().wait();
  }));
  begun.get_future().wait();
  job(1, CopyLane::kKvOut);
  job(2, CopyLane::kWeightsIn);
  job(3, CopyLane::kKvIn);
  job(4, CopyLane::kKvOut);
  job(5, CopyLane::kWeightsIn);
  job(6, CopyLane::kKvIn);
  asked.set_value();
  done.get_future().wait();
  EXPECT_EQ(order, (std::vector<int>{3, 6, 2, 5, 1, 4}));
  EXPECT_EQ(bytes.to, bytes.from);
}

TEST(CopyQueue, WhatIsUrgentOvertakesAJobThatHasBegun) {
  Bytes bytes;
  std::vector<std::byte> much(100 * kPiece, std::byte{1}), room(much.size());
  static std::promise<void> begun, asked;
  static DeviceAddress second;
  begun = {}, asked = {}, second = host_address(&room[kPiece]);
  std::promise<void> slow;
  std::vector<int> order;
  CopyQueue queue([](DeviceAddress address) {
    if (address == second) begun.set_value(), asked.get_future().wait();  // in the middle of the job
    return CpuDevice::at<std::byte>(address);
  });
  CopyJob large{CopyLane::kKvOut, {}, [&] { order.push_back(2), slow.set_value(); }};
  for (uint64_t at = 0; at < much.size(); at += kPiece) large.pieces.push_back({host_address(&room[at]), host_address(&much[at]), kPiece});
  queue.start(std::move(large));
  begun.get_future().wait();
  queue.start(bytes.job(CopyLane::kKvIn, [&] { order.push_back(1); }));
  asked.set_value();
  slow.get_future().wait();
  EXPECT_EQ(order, (std::vector<int>{1, 2}));
  EXPECT_EQ(bytes.to, bytes.from);
  EXPECT_EQ(room, much);
}

TEST(CopyQueue, WhoGivesWayGoesOnWhenNothingUrgentIsLeft) {
  Bytes leaving, back;
  CopyQueue queue(CpuDevice::at<std::byte>);
  queue.give_way();  // nothing is under way
  queue.start(leaving.job(CopyLane::kKvOut, {}));
  queue.start(back.job(CopyLane::kKvIn, {}));
  queue.give_way();
  EXPECT_EQ(back.to, back.from);
}

TEST(CopyQueue, EndsWithJobsLeftAndTakesNoMore) {
  Bytes bytes;
  CopyQueue queue(CpuDevice::at<std::byte>);
  const auto held = std::make_shared<int>();
  for (int i = 0; i < 1000; ++i) queue.start(bytes.job(i % 2 == 0 ? CopyLane::kKvIn : CopyLane::kKvOut, [held] {}));
  queue.end();
  queue.start(bytes.job(CopyLane::kKvIn, [held] {}));
  queue.give_way();
  EXPECT_EQ(held.use_count(), 1) << "what the jobs held is let go";
}

}  // namespace
}  // namespace shoal
