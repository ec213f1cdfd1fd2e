#include "host/kv_peers.h"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <thread>

#include "device/cpu_device.h"

namespace shoal {
namespace {

TEST(KvPeers, ANodeThatHasEndedOrNeverWasCannotBeRead) {
  const auto device = *CpuDevice::make(1);
  const auto memory = *device->make_host_tier(1, nullptr);
  KvStore tier(*memory);
  KvPeers peers;
  EXPECT_FALSE(peers.read(NodeId(7)));
  {
    const KvPeers::Attachment attachment(peers, NodeId(7), tier);
    EXPECT_TRUE(peers.read(NodeId(7)));
  }
  EXPECT_FALSE(peers.read(NodeId(7)));
}

TEST(KvPeers, TheEndOfATierWaitsForThoseWhoReadItOnWhateverThread) {
  const auto device = *CpuDevice::make(1);
  const auto memory = *device->make_host_tier(1, nullptr);
  KvStore tier(*memory);
  KvPeers peers;
  auto attachment = std::make_unique<KvPeers::Attachment>(peers, NodeId(7), tier);
  auto reading = std::make_unique<KvPeers::Reading>(peers.read(NodeId(7)));
  std::atomic<bool> ended{false};
  std::thread end([&] {
    attachment.reset();
    ended = true;
  });
  while (peers.read(NodeId(7))) std::this_thread::yield();
  EXPECT_FALSE(ended);
  std::thread([&] { reading.reset(); }).join();
  end.join();
  EXPECT_TRUE(ended);
}

}  // namespace
}  // namespace shoal
