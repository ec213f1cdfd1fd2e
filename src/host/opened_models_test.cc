#include "host/opened_models.h"

#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "base/clock.h"
#include "gtest/gtest.h"

namespace shoal {
namespace {

namespace fs = std::filesystem;
constexpr OpenedModels::Limits kPlenty{.files = 64, .bytes = 1ull << 40};

class OpenedModelsTest : public testing::Test {
 protected:
  OpenedModelsTest() : root_(fs::temp_directory_path() / ("shoal_opened_" + std::to_string(::getpid()))) {
    fs::remove_all(root_);
    for (const uint32_t i : {0u, 1u}) {
      fs::create_directories(folder(i));
      fs::copy(std::string(SHOAL_SOURCE_DIR) + "/models/tiny-llama", folder(i));
    }
  }
  ~OpenedModelsTest() override { fs::remove_all(root_); }

  fs::path folder(uint32_t i) const { return root_ / ("m" + std::to_string(i)); }
  ServedModel model(uint32_t i) const { return {ModelId(i), "m", folder(i), {}, 0}; }
  fs::path weights(uint32_t i) const { return folder(i) / "model.safetensors"; }

  const fs::path root_;
};

TEST_F(OpenedModelsTest, AModelIsFoundAsItWasLeft) {
  OpenedModels opened(kPlenty);
  const auto first = *opened.open(model(0));
  opened.tidy(steady_now());
  const auto again = *opened.open(model(0));
  EXPECT_EQ(again.plan, first.plan);
  EXPECT_NE(opened.open(model(1))->plan, first.plan);
  ServedModel quantized = model(0);
  quantized.load.quantization = Quantization::kQ8_0;
  EXPECT_NE(opened.open(quantized)->plan, first.plan);
}

TEST_F(OpenedModelsTest, FilesThatChangeAreOpenedAnew) {
  OpenedModels opened(kPlenty);
  const auto first = *opened.open(model(0));
  fs::copy(weights(0), root_ / "new");  // other weights in their place, as it should be done
  fs::rename(root_ / "new", weights(0));
  const auto second = *opened.open(model(0));
  EXPECT_NE(second.plan, first.plan);
  EXPECT_TRUE(first.checkpoint->check().ok());  // whoever reads the old ones still can
  std::ofstream(folder(0) / "config.json", std::ios::app) << "\n";  // what says how they are read
  EXPECT_NE(opened.open(model(0))->plan, second.plan);
  fs::resize_file(weights(0), 1000);  // cut in place
  EXPECT_FALSE(opened.open(model(0)).ok());
  fs::remove(weights(0));
  EXPECT_FALSE(opened.open(model(0)).ok());
  fs::copy(weights(1), weights(0));
  EXPECT_TRUE(opened.open(model(0)).ok());
}

TEST_F(OpenedModelsTest, WhatCannotBeReadAgainOrIsTooMuchIsClosed) {
  OpenedModels opened({.files = 1, .bytes = kPlenty.bytes});
  std::weak_ptr<const ModelPlan> first = opened.open(model(0))->plan, second = opened.open(model(1))->plan;
  EXPECT_FALSE(first.expired());  // not while somebody waits
  opened.tidy(steady_now());
  EXPECT_TRUE(first.expired());
  EXPECT_FALSE(second.expired());
  opened.forget(model(1));
  opened.tidy(steady_now());
  EXPECT_TRUE(second.expired());

  OpenedModels small({.files = 64, .bytes = 1000});
  first = small.open(model(0))->plan;
  small.tidy(steady_now());
  EXPECT_TRUE(first.expired());
}

TEST_F(OpenedModelsTest, AFileThatIsDeletedDoesNotStayOnTheDisk) {
  OpenedModels opened(kPlenty);
  const TimePoint now = steady_now();
  const std::weak_ptr<const ModelPlan> plan = opened.open(model(0))->plan;
  opened.tidy(now);
  fs::remove_all(folder(0));
  opened.tidy(now + std::chrono::seconds(1));  // not looked at each time
  EXPECT_FALSE(plan.expired());
  opened.tidy(now + std::chrono::minutes(1));
  EXPECT_TRUE(plan.expired());
}

}  // namespace
}  // namespace shoal
