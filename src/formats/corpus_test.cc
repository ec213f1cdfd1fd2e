// The fuzzers' seeds as ordinary tests: "ok_*" must be accepted, "bad_*" refused, and nothing may crash.
#include <filesystem>

#include "base/json.h"
#include "formats/fuzz_targets.h"
#include "gtest/gtest.h"

namespace shoal {
namespace {

void run_corpus(const std::string& name, bool (*target)(std::span<const std::byte>)) {
  size_t files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(SHOAL_SOURCE_DIR "/tests/corpus/" + name)) {
    const std::string file = entry.path().filename();
    const auto text = read_file(entry.path(), 1 << 20);
    ASSERT_TRUE(text.ok()) << text.status();
    const bool accepted = target(std::as_bytes(std::span(*text)));
    EXPECT_EQ(accepted, file.starts_with("ok_")) << file;
    ++files;
  }
  EXPECT_GE(files, 5u);
}

TEST(CorpusTest, SafetensorsSeedsAreJudgedRightly) { run_corpus("safetensors", fuzz_safetensors); }
TEST(CorpusTest, GgufSeedsAreJudgedRightly) { run_corpus("gguf", fuzz_gguf); }
TEST(CorpusTest, ConfigSeedsAreJudgedRightly) { run_corpus("config", fuzz_config); }

// Every prefix of a good file, and every file with one byte changed, is judged without a crash.
void shake(const std::string& path, bool (*target)(std::span<const std::byte>)) {
  std::string text = *read_file(path, 1 << 20);
  for (size_t length = 0; length < text.size(); length += 1 + text.size() / 700) {
    const std::vector<char> prefix(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(length));  // its own allocation
    target(std::as_bytes(std::span(prefix)));
  }
  for (size_t i = 0; i < text.size(); i += 1 + text.size() / 1500) {
    for (int flip : {0x01, 0x80, 0xff}) {
      text[i] = static_cast<char>(text[i] ^ flip);
      target(std::as_bytes(std::span(text)));
      text[i] = static_cast<char>(text[i] ^ flip);
    }
  }
}

TEST(CorpusTest, DamagedFilesNeverCrash) {
  const std::string corpus = SHOAL_SOURCE_DIR "/tests/corpus/";
  shake(corpus + "safetensors/ok_two", fuzz_safetensors);
  shake(corpus + "gguf/ok_llama", fuzz_gguf);
  shake(corpus + "config/ok_llama3", fuzz_config);
}

}  // namespace
}  // namespace shoal
