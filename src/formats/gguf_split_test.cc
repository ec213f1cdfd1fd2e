// GGUF files in several parts, written in the test.
#include <cstring>
#include <filesystem>
#include <fstream>

#include "formats/gguf_file.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace shoal {
namespace {

namespace fs = std::filesystem;

template <typename T>
std::string raw(T value) {
  std::string bytes(sizeof(T), '\0');
  std::memcpy(bytes.data(), &value, sizeof(T));
  return bytes;
}
std::string text(const std::string& s) { return raw<uint64_t>(s.size()) + s; }
std::string u32(const std::string& key, uint32_t value) { return text(key) + raw<uint32_t>(4) + raw(value); }
std::string u16(const std::string& key, uint16_t value) { return text(key) + raw<uint32_t>(2) + raw(value); }
std::string string(const std::string& key, const std::string& value) { return text(key) + raw<uint32_t>(8) + text(value); }

// A file with one f32 vector of 8 elements.
std::string part(const std::vector<std::string>& pairs, const std::string& tensor, std::vector<uint64_t> dims) {
  std::string file = "GGUF" + raw<uint32_t>(3) + raw<uint64_t>(1) + raw<uint64_t>(pairs.size());
  for (const std::string& pair : pairs) file += pair;
  file += text(tensor) + raw<uint32_t>(static_cast<uint32_t>(dims.size()));
  uint64_t elements = 1;
  for (uint64_t dim : dims) file += raw(dim), elements *= dim;
  file += raw<uint32_t>(0) + raw<uint64_t>(0);
  file.resize((file.size() + 31) / 32 * 32);
  return file + std::string(elements * 4, '\2');
}

std::vector<std::string> first_pairs(uint16_t count) {
  return {string("general.architecture", "qwen2"), u32("qwen2.block_count", 1), u32("qwen2.embedding_length", 8),
          u32("qwen2.feed_forward_length", 8), u32("qwen2.attention.head_count", 1), u16("split.no", 0), u16("split.count", count)};
}

class SplitTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = fs::temp_directory_path() / "shoal_split_XXXXXX";
    folder_ = ::mkdtemp(pattern.data());
  }
  void TearDown() override { fs::remove_all(folder_); }
  std::string put(const std::string& name, const std::string& bytes) {
    std::ofstream(folder_ + "/" + name, std::ios::binary) << bytes;
    return folder_ + "/" + name;
  }
  std::string folder_;
};

TEST_F(SplitTest, AllPartsAreRead) {
  const std::string first = put("m-00001-of-00002.gguf", part(first_pairs(2), "token_embd.weight", {8, 3}));
  put("m-00002-of-00002.gguf", part({u16("split.no", 1), u16("split.count", 2)}, "output_norm.weight", {8}));
  const auto checkpoint = open_gguf(first);
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
  EXPECT_EQ((*checkpoint)->files.size(), 2u);
  EXPECT_NE((*checkpoint)->weights.find("model.norm.weight"), nullptr);
  EXPECT_EQ((*checkpoint)->config.vocab_size, 3u);
}

TEST_F(SplitTest, AMissingPartIsNamed) {
  const std::string first = put("m-00001-of-00002.gguf", part(first_pairs(2), "token_embd.weight", {8, 3}));
  EXPECT_THAT(std::string(open_gguf(first).status().message()), testing::HasSubstr("m-00002-of-00002.gguf"));
}

TEST_F(SplitTest, OnlyTheFirstPartMayBeNamed) {
  const std::string second = put("m-00002-of-00002.gguf", part({u16("split.no", 1), u16("split.count", 2)}, "output_norm.weight", {8}));
  EXPECT_THAT(std::string(open_gguf(second).status().message()), testing::HasSubstr("name the first part"));
}

TEST_F(SplitTest, APartThatIsNotNamedAsOneIsRefused) {
  const std::string path = put("m.gguf", part(first_pairs(2), "token_embd.weight", {8, 3}));
  EXPECT_THAT(std::string(open_gguf(path).status().message()), testing::HasSubstr("-00001-of-00002.gguf"));
}

}  // namespace
}  // namespace shoal
