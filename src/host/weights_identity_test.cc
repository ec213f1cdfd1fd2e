#include "host/weights_identity.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <set>

namespace shoal {
namespace {

namespace fs = std::filesystem;

constexpr ModelDigest::Content kFiles{1, 2, 3};

class SketchTest : public testing::Test {
 protected:
  SketchTest() { fs::create_directories(folder_); }
  ~SketchTest() override { fs::remove_all(folder_); }

  // The folder of a copy of a model.
  fs::path copy(const std::string& name) {
    fs::copy(SHOAL_SOURCE_DIR "/models/tiny-llama", folder_ / name);
    return folder_ / name;
  }
  static ModelDigest::Content sketch(const fs::path& path) { return *sketch_of(**open_checkpoint(path)); }

  const fs::path folder_ = testing::TempDir() + "shoal_sketches_" + std::to_string(getpid());
};

void overwrite(const fs::path& path, uint64_t at, const std::string& bytes) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(static_cast<std::streamoff>(at));
  file << bytes;
}

TEST_F(SketchTest, CopiesOfAModelHaveOneStamp) {
  const fs::path first = copy("first"), second = copy("second");
  EXPECT_EQ(sketch(first), sketch(second));
  std::ofstream(second / "config.json", std::ios::app) << "\n";
  EXPECT_NE(sketch(first), sketch(second)) << "how the weights are read is a part of it";
}

// Training changes all of a tensor, or one of its rows; a small tensor is looked at as a whole.
TEST_F(SketchTest, OtherWeightsOfTheSameShapeHaveAnother) {
  const fs::path first = copy("first");
  const auto checkpoint = *open_checkpoint(first);
  const std::byte* const begin = checkpoint->files.at(0)->bytes().data();
  std::set<ModelDigest::Content> seen = {sketch(first)};
  for (const auto& [name, view] : checkpoint->weights.all()) {
    const fs::path other = copy("other");
    const auto at = static_cast<uint64_t>(view.data - begin);
    const bool small = view.bytes <= 4096;
    overwrite(other / "model.safetensors", small ? at + view.bytes / 2 : at, std::string(small ? 1 : view.bytes, '\x11'));
    EXPECT_TRUE(seen.insert(sketch(other)).second) << name;
    fs::remove_all(other);
  }
}

TEST_F(SketchTest, FilesThatChangeMeanwhileHaveNone) {
  const fs::path model = copy("model");
  const auto checkpoint = *open_checkpoint(model);
  std::ofstream(model / "config.json", std::ios::app) << "\n";
  EXPECT_EQ(sketch_of(*checkpoint).status().code(), StatusCode::kDataLoss);
}

TEST(WeightsIdentity, TheStampIsTheSameNumberInEveryProcess) {
  // A number of this process's own would end every answer that goes on in another.
  EXPECT_EQ(weights_stamp(kFiles, {}), 12085551588814416061ull);
}

TEST(WeightsIdentity, WhateverChangesTheBitsOfAnAnswerChangesBothNames) {
  std::set<uint64_t> stamps;
  std::set<ModelDigest::Content> contents;
  const auto is_new = [&](const ModelDigest::Content& files, const LoadOptions& options) {
    return stamps.insert(weights_stamp(files, options)).second && contents.insert(weights_content(files, options)).second;
  };
  EXPECT_TRUE(is_new(kFiles, {}));
  EXPECT_TRUE(is_new({1, 2, 4}, {}));
  EXPECT_TRUE(is_new(kFiles, {.quantization = Quantization::kQ8_0}));
  EXPECT_TRUE(is_new(kFiles, {.kv_type = KvType::kF16}));
  EXPECT_TRUE(is_new(kFiles, {.kv_type = KvType::kBF16})) << "as many bytes as F16";
}

TEST(WeightsIdentity, HowTheFilesAreReadChangesNeither) {
  EXPECT_EQ(weights_stamp(kFiles, {.io = ModelIo::kDirect}), weights_stamp(kFiles, {.io = ModelIo::kMapped}));
  EXPECT_EQ(weights_content(kFiles, {.io = ModelIo::kDirect}), weights_content(kFiles, {.io = ModelIo::kMapped}));
}

}  // namespace
}  // namespace shoal
