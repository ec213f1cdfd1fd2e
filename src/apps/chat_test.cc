// The parts of `chat` that need no terminal.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "apps/line_editor.h"
#include "apps/thinking.h"

namespace shoal {
namespace {

using ::testing::ElementsAre;

std::string styled(const std::string& text, size_t piece) {
  ThinkingStyle style("[", "]");
  std::string out;
  for (size_t at = 0; at < text.size(); at += piece) out += style.push(std::string_view(text).substr(at, piece));
  return out + style.finish();
}

TEST(ThinkingStyle, TagsAreFoundInAnyPieces) {
  const std::string text = "a<think>hm < </thi nk</think>b<thin";
  for (size_t piece = 1; piece <= text.size(); ++piece) EXPECT_EQ(styled(text, piece), "a[hm < </thi nk]b<thin") << piece;
}

TEST(ThinkingStyle, AThoughtThatNeverEndsIsEnded) { EXPECT_EQ(styled("<think>hm", 3), "[hm]"); }

TEST(ThinkingStyle, OrdinaryTextIsShownAtOnce) {
  ThinkingStyle style("[", "]");
  EXPECT_EQ(style.push("hello"), "hello");
  EXPECT_EQ(style.push("a < b"), "a < b");
}

class History : public testing::Test {
 protected:
  ~History() override { std::filesystem::remove_all(folder_); }
  // Tests run side by side, each in a process of its own.
  const std::string folder_ = testing::TempDir() + "shoal_history_test_" + std::to_string(getpid());
  const std::string path_ = folder_ + "/shoal/history";
};

TEST_F(History, MessagesComeBackWithTheirLines) {
  append_history(path_, "one");
  append_history(path_, "two\nlines \"quoted\"");
  append_history(path_, "");
  EXPECT_THAT(read_history(path_), ElementsAre("one", "two\nlines \"quoted\""));
}

TEST_F(History, TheFileIsForItsOwnerAlone) {
  append_history(path_, "secret");
  struct stat info {};
  ASSERT_EQ(stat(path_.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
  ASSERT_EQ(stat((folder_ + "/shoal").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0700u);
}

TEST_F(History, TheFileStaysBound) {
  for (size_t i = 0; i <= 2 * kHistoryMax; ++i) append_history(path_, "m" + std::to_string(i));
  const auto messages = read_history(path_);
  EXPECT_EQ(messages.size(), kHistoryMax);
  EXPECT_EQ(messages.back(), "m" + std::to_string(2 * kHistoryMax));
  EXPECT_LT(std::filesystem::file_size(path_), 20 * kHistoryMax);
}

TEST_F(History, DamageAndAbsenceAreNoErrors) {
  EXPECT_TRUE(read_history(path_).empty());
  append_history("", "nowhere");
  append_history(path_, "good");
  std::ofstream(path_, std::ios::app) << "not json\n{}\n";
  EXPECT_THAT(read_history(path_), ElementsAre("good"));
}

}  // namespace
}  // namespace shoal
