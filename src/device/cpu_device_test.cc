#include "device/cpu_device.h"

#include <gtest/gtest.h>

#include <cstring>
#include <future>
#include <vector>

namespace shoal {
namespace {

constexpr uint64_t kBytes = 3 * kPageBytes;

void copy_and_wait(Device& device, DeviceAddress to, DeviceAddress from, uint64_t bytes) {
  std::promise<void> done;
  device.copy({CopyLane::kKvIn, {{to, from, bytes}}, [&] { done.set_value(); }});
  done.get_future().wait();
}

class CpuDeviceTest : public testing::TestWithParam<DeviceGuard> {
 protected:
  const std::unique_ptr<CpuDevice> device_ = *CpuDevice::make(8, GetParam());
};

TEST_P(CpuDeviceTest, WhatIsCopiedToScatteredPagesAndToAHostTierComesBack) {
  const DeviceSpan pages = *device_->map(std::vector<PageRange>{{6, 1}, {1, 2}});
  ASSERT_EQ(pages.bytes, kBytes);
  const auto tier = *device_->make_host_tier(4, nullptr);
  const DeviceSpan parked = *tier->map(std::vector<PageRange>{{0, 3}});
  std::vector<std::byte> bytes(kBytes), back(kBytes);
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i * 31 >> 7);
  copy_and_wait(*device_, pages.begin, host_address(bytes.data()), kBytes);
  copy_and_wait(*device_, parked.begin, pages.begin, kBytes);
  copy_and_wait(*device_, pages.begin, host_address(back.data()), kBytes);
  copy_and_wait(*device_, pages.begin, parked.begin, kBytes);
  copy_and_wait(*device_, host_address(back.data()), pages.begin, kBytes);
  EXPECT_EQ(back, bytes);
  EXPECT_EQ(std::memcmp(CpuDevice::at(parked.begin), bytes.data(), kBytes), 0) << "the host reads its own tier";
  device_->unmap(pages);
  tier->unmap(parked);
}

TEST_P(CpuDeviceTest, MemoryBesideThePagesIsZeroAndItsOwn) {
  const DeviceSpan a = *device_->allocate(100), b = *device_->allocate(100);
  std::vector<std::byte> ones(100, std::byte{1}), read(100, std::byte{9});
  copy_and_wait(*device_, a.begin, host_address(ones.data()), 100);
  copy_and_wait(*device_, host_address(read.data()), b.begin, 100);
  EXPECT_EQ(read, std::vector<std::byte>(100));
  EXPECT_EQ(a.begin.address % 64, 0u);
}

TEST_P(CpuDeviceTest, MemoryThatCannotBeHadIsAnError) {
  EXPECT_EQ(device_->allocate(uint64_t{1} << 60).status().code(), StatusCode::kResourceExhausted);
}

INSTANTIATE_TEST_SUITE_P(Guards, CpuDeviceTest, testing::Values(DeviceGuard::kNone, DeviceGuard::kGuarded));

TEST(GuardedDeviceDeathTest, NobodyButTheDeviceReadsThroughItsAddresses) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto device = *CpuDevice::make(1, DeviceGuard::kGuarded);
  const DeviceSpan page = *device->map(std::vector<PageRange>{{0, 1}});
  const auto read = [&] { return *reinterpret_cast<const volatile std::byte*>(page.begin.address); };
  EXPECT_DEATH(static_cast<void>(read()), "");
}

}  // namespace
}  // namespace shoal
