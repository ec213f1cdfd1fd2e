#include "experts/channel.h"

#include <sys/mman.h>

#include <algorithm>
#include <memory>
#include <thread>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "gtest/gtest.h"
#include "slots/message.h"
#include "transport/bulk_tcp.h"

namespace shoal {
namespace {

constexpr SlotSizes kSizes{2, 8192};

struct Pair {
  std::unique_ptr<SlotChannel> from, to;
  std::span<std::byte> inbox;  // of lane 1 of `to`
};

Pair connected() {
  const auto network = make_bulk_tcp();
  auto listener = network->listen("127.0.0.1:0");
  CHECK(listener.ok());
  std::unique_ptr<BulkSocket> accepted;
  std::thread accepts([&] { accepted = (*listener)->accept(); });
  auto dialed = network->connect(absl::StrCat("127.0.0.1:", (*listener)->port()));
  accepts.join();
  CHECK(dialed.ok());
  const auto parts = [](std::unique_ptr<BulkSocket> socket) {
    return SlotChannel::Parts{.inbox = *Region::make_private(kSizes), .outbox = *Region::make_private(kSizes), .bell = *Bell::make(), .in = std::move(socket)};
  };
  SlotChannel::Parts far = parts(std::move(accepted));
  const std::span<std::byte> inbox = far.inbox->half(1);
  return {std::make_unique<SlotChannel>(parts(*std::move(dialed)), kSizes.lanes, nullptr), std::make_unique<SlotChannel>(std::move(far), kSizes.lanes, nullptr), inbox};
}

void publish(SlotChannel& channel, const ControlWord& word, std::byte fill) {
  const std::span<std::byte> out = channel.outbox(1);
  std::fill(out.begin() + kSlotHeadAt, out.end(), fill);
  channel.publish(1, word, out.size());
}

void await_arrival(SlotChannel& channel) {
  while (!channel.arrived(1) && !channel.broken()) std::this_thread::yield();
  ASSERT_FALSE(channel.broken());
}

// Whoever reads a half may do so while the same one comes once more.
TEST(SlotChannel, WhatComesOnceMoreIsHeardOfAndTouchesNothing) {
  Pair pair = connected();
  ControlWord word{.seq = 7, .epoch = 3, .state = SlotState::kWritten};
  publish(*pair.from, word, std::byte{1});
  await_arrival(*pair.to);
  EXPECT_EQ(pair.to->control(1), pack(word));
  EXPECT_EQ(pair.inbox[kSlotHeadAt], std::byte{1});

  ASSERT_EQ(::mprotect(pair.inbox.data(), pair.inbox.size(), PROT_READ), 0);  // a write would end the connection, or the process
  publish(*pair.from, word, std::byte{1});
  await_arrival(*pair.to);
  ASSERT_EQ(::mprotect(pair.inbox.data(), pair.inbox.size(), PROT_READ | PROT_WRITE), 0);

  publish(*pair.from, word, std::byte{2});  // one was torn
  await_arrival(*pair.to);
  EXPECT_EQ(pair.inbox.back(), std::byte{2});
  ++word.seq;
  publish(*pair.from, word, std::byte{3});
  await_arrival(*pair.to);
  EXPECT_EQ(pair.to->control(1), pack(word));
  EXPECT_EQ(pair.inbox.back(), std::byte{3});
}

}  // namespace
}  // namespace shoal
