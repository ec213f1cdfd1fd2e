#include "apps/output_file.h"

#include <filesystem>
#include <fstream>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace shoal {
namespace {

using ::testing::HasSubstr;

TEST(OutputFile, AMissingFolderIsNamedAndNotMade) {
  const std::filesystem::path folder = std::filesystem::path(testing::TempDir()) / "no-such-folder";
  const Status status = check_output("--report", folder / "run.html");
  EXPECT_EQ(status.code(), StatusCode::kNotFound);
  EXPECT_THAT(status.message(), HasSubstr("--report " + (folder / "run.html").string() + ": there is no folder " + folder.string()));
  EXPECT_FALSE(std::filesystem::exists(folder));
}

TEST(OutputFile, WhatCanBeWrittenIsLeftAsItIsByTheQuestion) {
  const std::filesystem::path path = std::filesystem::path(testing::TempDir()) / "kept.html";
  std::ofstream(path) << "before";
  EXPECT_TRUE(check_output("--report", path).ok());
  EXPECT_EQ(std::filesystem::file_size(path), 6u);
  EXPECT_TRUE(check_output("--report", "").ok());
  EXPECT_TRUE(check_output("--report", "in-this-folder.html").ok());
  EXPECT_FALSE(std::filesystem::exists("in-this-folder.html"));
}

TEST(OutputFile, AFolderOrAFileInAFileIsNoFile) {
  const std::filesystem::path folder = testing::TempDir();
  EXPECT_THAT(check_output("--csv", folder).message(), HasSubstr("is a folder"));
  std::ofstream(folder / "plain") << "x";
  EXPECT_THAT(check_output("--csv", folder / "plain" / "run.csv").message(), HasSubstr("is no folder"));
}

TEST(OutputFile, AFailureToWriteSaysWhatTheSystemSays) {
  EXPECT_THAT(write_output("/dev/full", std::string(100'000, 'x')).message(), HasSubstr("No space left"));
}

}  // namespace
}  // namespace shoal
