#include <gtest/gtest.h>

#include "apps/settings.h"
#include "device/thread_pool.h"

namespace shoal {
namespace {

StatusOr<std::vector<DeviceSpec>> specs(std::vector<std::string> devices, const std::string& partition = "auto") {
  EngineFlags flags;
  flags.devices = std::move(devices);
  flags.partition = partition;
  return device_specs(flags);
}

std::string refusal(std::vector<std::string> devices, const std::string& partition = "auto") {
  return std::string(specs(std::move(devices), partition).status().message());
}

std::string cpu(size_t index) { return "cpu:" + std::to_string(allowed_cpus().at(index)); }

TEST(DeviceSpecs, WithoutDevicesThereIsOneOfAllCoresThatDoesEverything) {
  for (const std::vector<std::string>& devices : {std::vector<std::string>{}, {"cpu"}}) {
    const auto found = specs(devices);
    ASSERT_TRUE(found.ok());
    ASSERT_EQ(found->size(), 1u);
    EXPECT_TRUE(found->front().cpus.empty());
    EXPECT_EQ(found->front().instance_role, InstanceRole::kBoth);
  }
}

TEST(DeviceSpecs, TwoDevicesAreOneForPromptsAndOneForDecodes) {
  if (allowed_cpus().size() < 2) GTEST_SKIP() << "one core";
  const auto two = specs({cpu(0), cpu(1)});
  ASSERT_TRUE(two.ok()) << two.status();
  EXPECT_EQ((*two)[0].instance_role, InstanceRole::kPrefill);
  EXPECT_EQ((*two)[1].instance_role, InstanceRole::kDecode);
  EXPECT_EQ((*two)[1].cpus, (std::vector<int>{allowed_cpus()[1]}));
  const auto both = specs({cpu(0), cpu(1)}, "both");
  ASSERT_TRUE(both.ok());
  EXPECT_EQ((*both)[0].instance_role, InstanceRole::kBoth);
}

TEST(DeviceSpecs, AGuardedDeviceIsACpuThatTestsAskFor) {
  const auto found = specs({"guarded:" + std::to_string(allowed_cpus().at(0))});
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_TRUE(found->front().guarded);
  EXPECT_EQ(found->front().cpus, (std::vector<int>{allowed_cpus()[0]}));
  EXPECT_FALSE(specs({"cpu"})->front().guarded);
}

TEST(DeviceSpecs, WhatCannotBeIsRefusedWithTheReason) {
  EXPECT_NE(refusal({"gpu:0"}).find("unknown kind of device"), std::string::npos);
  EXPECT_NE(refusal({"cpu:x"}).find("'x' is no core"), std::string::npos);
  EXPECT_NE(refusal({"cpu:3-1"}).find("no range of cores"), std::string::npos);
  EXPECT_NE(refusal({"cpu:4000"}).find("may not use core 4000"), std::string::npos);
  EXPECT_NE(refusal({cpu(0), cpu(0)}).find("named twice"), std::string::npos);
  EXPECT_NE(refusal({cpu(0), "cpu"}).find("cores of their own"), std::string::npos);
  if (allowed_cpus().size() < 2) return;
  EXPECT_NE(refusal({cpu(0), cpu(1)}, "2+1").find("names 3 devices, and --devices 2"), std::string::npos);
  EXPECT_NE(refusal({cpu(0), cpu(1)}, "half").find("PREFILL+DECODE"), std::string::npos);
  EXPECT_NE(refusal({cpu(0), cpu(1)}, "0+2").find("PREFILL+DECODE"), std::string::npos);
}

}  // namespace
}  // namespace shoal
