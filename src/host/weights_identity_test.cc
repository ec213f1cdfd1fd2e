#include "host/weights_identity.h"

#include <gtest/gtest.h>

#include <set>

namespace shoal {
namespace {

constexpr FileIdentity kFile = {64'768, 1'234'567, 98'362'432, 1'764'000'000'123'456'789};

TEST(WeightsIdentity, IsTheSameNumberInEveryProcess) {
  // A number of this process's own would end every answer that goes on in another.
  EXPECT_EQ(weights_identity({{kFile}}, {}), 2813098747978187809ull);
  EXPECT_EQ(weights_identity({}, {}), 16294208416658607535ull);
}

TEST(WeightsIdentity, WhateverChangesTheBitsOfAnAnswerChangesIt) {
  std::set<uint64_t> seen = {weights_identity({{kFile}}, {})};
  const auto is_new = [&](uint64_t identity) { return identity != 0 && seen.insert(identity).second; };
  for (size_t part = 0; part < kFile.size(); ++part) {
    FileIdentity other = kFile;
    ++other[part];
    EXPECT_TRUE(is_new(weights_identity({{other}}, {}))) << part;
  }
  EXPECT_TRUE(is_new(weights_identity({}, {})));
  const FileIdentity two[] = {kFile, kFile};
  EXPECT_TRUE(is_new(weights_identity(two, {})));
  EXPECT_TRUE(is_new(weights_identity({{kFile}}, {.quantization = Quantization::kQ8_0})));
  EXPECT_TRUE(is_new(weights_identity({{kFile}}, {.kv_type = KvType::kF16})));
  EXPECT_TRUE(is_new(weights_identity({{kFile}}, {.kv_type = KvType::kBF16}))) << "as many bytes as F16";
}

TEST(WeightsIdentity, WhatFilesHoldAndWhatIsDoneWithThemIsTheContent) {
  const ModelDigest::Content one{1}, other{2};
  std::set<ModelDigest::Content> seen = {weights_content(one, {})};
  EXPECT_EQ(*seen.begin(), weights_content(one, {.io = ModelIo::kDirect}));
  const auto is_new = [&](const ModelDigest::Content& content) { return ModelDigest(1, content).known() && seen.insert(content).second; };
  EXPECT_TRUE(is_new(weights_content(other, {})));
  EXPECT_TRUE(is_new(weights_content(one, {.quantization = Quantization::kQ8_0})));
  EXPECT_TRUE(is_new(weights_content(one, {.kv_type = KvType::kF16})));
  EXPECT_TRUE(is_new(weights_content(one, {.kv_type = KvType::kBF16}))) << "as many bytes as F16";
}

TEST(WeightsIdentity, HowTheFilesAreReadDoesNot) {
  EXPECT_EQ(weights_identity({{kFile}}, {.io = ModelIo::kDirect}), weights_identity({{kFile}}, {.io = ModelIo::kMapped}));
}

}  // namespace
}  // namespace shoal
