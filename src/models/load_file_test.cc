// Loads from real files: both ways of reading, and files that change meanwhile.
#include <unistd.h>

#include <filesystem>
#include <thread>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "models/test_runner.h"

namespace shoal {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

// A copy of a model that lives as long as the test.
class ModelCopy {
 public:
  ModelCopy() : folder_(fs::temp_directory_path() / ("shoal_load_" + std::to_string(::getpid()))) {
    fs::remove_all(folder_);
    fs::copy(std::string(SHOAL_SOURCE_DIR) + "/models/tiny-llama", folder_);
  }
  ~ModelCopy() { fs::remove_all(folder_); }
  std::string folder() const { return folder_; }
  std::string weights() const { return folder_ / "model.safetensors"; }

 private:
  fs::path folder_;
};

class LoadFileTest : public testing::TestWithParam<ModelIo> {
 protected:
  void SetUp() override {
    if (GetParam() == ModelIo::kDirect && !(*MappedFile::open(model_.weights()))->open_direct().ok()) GTEST_SKIP() << "no direct reads";
    plan_ = *plan_model(*open_checkpoint(model_.folder()), {.io = GetParam()});
    memory_ = on_.allocate(plan_->weight_bytes());
  }
  Status load(bool cancelled) {
    LoadControl control;
    control.cancelled = cancelled;
    return plan_->load(memory_, *on_.backend, on_.threads, control).status();
  }

  std::span<std::byte> bytes() const { return {CpuDevice::at(memory_.begin), memory_.bytes}; }
  std::string text() const { return {reinterpret_cast<const char*>(bytes().data()), bytes().size()}; }

  ModelCopy model_;
  TestDevice on_;
  std::unique_ptr<ModelPlan> plan_;
  DeviceSpan memory_;
};

TEST(EarlyLoadTest, WhatIsComputedFromAFileThatChangesMeanwhileIsAnErrorAndSoIsAllThatFollows) {
  const ModelCopy copy;
  const auto plan = *plan_model(*open_checkpoint(copy.folder()), {});
  TestDevice on(2, DeviceGuard::kNone);
  ThreadPool load_threads(1);
  std::unique_ptr<Model> model;
  const DeviceSpan workspace = on.allocate(plan->workspace_bytes(1, 1));
  const DeviceAddress blocks[] = {on.allocate(plan->kv_block_bytes()).begin};
  const TokenId token = 3;
  const SequenceSlice slice{1, 0, 1, blocks};
  const LogitsQuery row{0};
  const ForwardInput input{{&token, 1}, {&slice, 1}, {&row, 1}};
  const auto step = [&]() -> Status {
    ASSIGN_OR_RETURN(const auto pass, model->begin(input, workspace));
    return pass->advance().status();
  };
  LoadControl control;
  control.early = [&](std::unique_ptr<Model> early) {
    model = std::move(early);
    EXPECT_TRUE(step().ok());
    fs::resize_file(copy.weights(), 4096);
    EXPECT_EQ(step().code(), StatusCode::kDataLoss);
  };
  const auto loaded = plan->load(on.allocate(plan->weight_bytes()), *on.backend, load_threads, control);
  EXPECT_EQ(loaded.status().code(), StatusCode::kDataLoss);
  EXPECT_EQ(step().code(), StatusCode::kDataLoss) << "its weights never came";
}

TEST_P(LoadFileTest, TheWeightsAreTheSameHoweverTheyAreRead) {
  ASSERT_TRUE(load(false).ok());
  const auto other = *plan_model(*open_checkpoint(model_.folder()), {});
  const DeviceSpan memory = on_.allocate(other->weight_bytes());
  LoadControl control;
  ASSERT_TRUE(other->load(memory, *on_.backend, on_.threads, control).ok());
  ASSERT_EQ(memory.bytes, memory_.bytes);
  EXPECT_EQ(std::memcmp(CpuDevice::at(memory.begin), bytes().data(), memory.bytes), 0);
}

TEST_P(LoadFileTest, AFileThatWasTruncatedIsATypedError) {
  fs::resize_file(model_.weights(), fs::file_size(model_.weights()) / 3);
  const Status status = load(false);
  EXPECT_EQ(status.code(), StatusCode::kDataLoss) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("model.safetensors"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("truncated"));
}

TEST_P(LoadFileTest, AFileThatWasOverwrittenInPlaceIsATypedError) {
  fs::last_write_time(model_.weights(), fs::last_write_time(model_.weights()) + std::chrono::seconds(1));
  const Status status = load(false);
  EXPECT_EQ(status.code(), StatusCode::kDataLoss) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("was written to"));
}

TEST_P(LoadFileTest, AFileThatIsCutAtAnyMomentOfTheLoadNeverEndsTheProcess) {
  const uint64_t bytes = fs::file_size(model_.weights());
  for (int round = 0; round < 8; ++round) {
    std::thread cutter([&] { fs::resize_file(model_.weights(), bytes * static_cast<uint64_t>(round) / 8); });
    const Status status = load(false);
    cutter.join();
    EXPECT_TRUE(status.ok() || status.code() == StatusCode::kDataLoss) << status;
    EXPECT_EQ(load(false).code(), StatusCode::kDataLoss) << "it is cut now";
  }
}

TEST_P(LoadFileTest, ACancelledLoadEnds) { EXPECT_EQ(load(true).code(), StatusCode::kCancelled); }

// A place for the bytes of one model, as a cache of weights is.
struct Keeper {
  Keeper() {
    kept.room = [this](uint64_t bytes) -> std::span<std::byte> {
      ++asked;
      buffer = *Buffer::allocate(bytes + 4096);
      const auto begin = reinterpret_cast<uintptr_t>(buffer.data());
      return {buffer.data() + (4096 - begin % 4096) % 4096, bytes};
    };
  }
  Buffer buffer;
  KeptWeights kept;
  int asked = 0;
};

TEST_P(LoadFileTest, WhatIsKeptIsNotReadAgainAndOfAnotherFileNotUsed) {
  if (GetParam() != ModelIo::kDirect) GTEST_SKIP() << "the system's cache does it";
  Keeper keeper;
  const auto load_again = [&](bool cancelled = false) {
    LoadControl control;
    control.cancelled = cancelled;
    control.kept = &keeper.kept;
    std::fill(bytes().begin(), bytes().end(), std::byte{0});
    const auto plan = *plan_model(*open_checkpoint(model_.folder()), {.io = GetParam()});
    return plan->load(memory_, *on_.backend, on_.threads, control).status();
  };
  ASSERT_TRUE(load(false).ok());
  const std::string expected = text();
  EXPECT_EQ(load_again(true).code(), StatusCode::kCancelled);
  LoadControl ahead;
  ahead.kept = &keeper.kept;
  ASSERT_TRUE(plan_->read_ahead(on_.threads, ahead).ok());
  EXPECT_EQ(ahead.bytes_done, 0u);
  EXPECT_EQ(std::count(keeper.kept.have.begin(), keeper.kept.have.end(), 1), static_cast<ptrdiff_t>(keeper.kept.have.size()));
  ASSERT_TRUE(load_again().ok());
  EXPECT_EQ(text(), expected);
  EXPECT_EQ(keeper.asked, 1);
  std::fill(keeper.kept.memory.begin(), keeper.kept.memory.end(), std::byte{0});  // so the next load shows where from it reads
  ASSERT_TRUE(load_again().ok());
  EXPECT_NE(text(), expected);
  fs::last_write_time(model_.weights(), fs::last_write_time(model_.weights()) + std::chrono::seconds(1));
  ASSERT_TRUE(load_again().ok());
  EXPECT_EQ(text(), expected);
  EXPECT_EQ(keeper.asked, 2);
  fs::resize_file(model_.weights(), fs::file_size(model_.weights()) / 2);
  EXPECT_EQ(plan_->read_ahead(on_.threads, ahead).code(), StatusCode::kDataLoss);
  EXPECT_TRUE(keeper.kept.have.empty());
}

TEST_P(LoadFileTest, WithoutRoomToKeepThemTheWeightsAreReadAsEver) {
  LoadControl control;
  KeptWeights none;
  none.room = [](uint64_t) { return std::span<std::byte>(); };
  control.kept = &none;
  ASSERT_TRUE(load(false).ok());
  const std::string expected = text();
  std::fill(bytes().begin(), bytes().end(), std::byte{0});
  ASSERT_TRUE(plan_->load(memory_, *on_.backend, on_.threads, control).ok());
  EXPECT_EQ(text(), expected);
}

INSTANTIATE_TEST_SUITE_P(Io, LoadFileTest, testing::Values(ModelIo::kMapped, ModelIo::kDirect),
                         [](const auto& info) { return info.param == ModelIo::kMapped ? "Mapped" : "Direct"; });

}  // namespace
}  // namespace shoal
