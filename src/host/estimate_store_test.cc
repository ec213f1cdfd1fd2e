#include "host/estimate_store.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace shoal {
namespace {

NodeModel model(const std::string& name) {
  NodeModel m;
  m.name = name;
  m.weight_bytes = 1000;
  return m;
}

class EstimateStoreTest : public testing::Test {
 protected:
  EstimateStoreTest() { std::filesystem::remove_all(folder_); }
  ~EstimateStoreTest() override { std::filesystem::remove_all(folder_); }
  const std::string folder_ = testing::TempDir() + "shoal_estimates_" + std::to_string(getpid());
  const std::string path_ = folder_ + "/a/b/estimates.json";
};

TEST_F(EstimateStoreTest, WhatWasMeasuredIsThereInTheNextRun) {
  ModelEstimator costs;
  costs.observe_switch(0.75, 0.25);
  EstimateStore store(path_, 4);
  EXPECT_FALSE(store.find(model("a")).has_value());
  store.put(model("a"), costs);
  ASSERT_TRUE(store.save().ok());
  const EstimateStore again(path_, 4);
  ASSERT_TRUE(again.find(model("a")).has_value());
  EXPECT_DOUBLE_EQ(again.find(model("a"))->switch_seconds(0), 0.75);
  EXPECT_FALSE(again.find(model("b")).has_value());
  EXPECT_FALSE(EstimateStore(path_, 8).find(model("a")).has_value()) << "another machine";
}

TEST_F(EstimateStoreTest, ADamagedFileIsLeftOutAndReplaced) {
  std::filesystem::create_directories(folder_ + "/a/b");
  for (const char* text : {"", "{", "[]", R"({"version":2,"models":{}})", R"({"version":1,"models":{"x":{"decode":"fast"}}})", R"({"version":1,"models":3})"}) {
    std::ofstream(path_) << text;
    EstimateStore store(path_, 1);
    EXPECT_FALSE(store.find(model("x")).has_value()) << text;
    store.put(model("a"), ModelEstimator());
    ASSERT_TRUE(store.save().ok()) << text;
    EXPECT_TRUE(EstimateStore(path_, 1).find(model("a")).has_value()) << text;
  }
}

TEST_F(EstimateStoreTest, WithoutAPathNothingIsWritten) {
  EstimateStore nowhere("", 1);
  nowhere.put(model("a"), ModelEstimator());
  EXPECT_TRUE(nowhere.save().ok());
}

TEST_F(EstimateStoreTest, WhereItCannotBeWrittenTheFileTheCauseAndTheWayOutAreNamed) {
  std::filesystem::create_directories(path_ + "/in_the_way");
  std::ofstream(folder_ + "/file") << "not a folder";
  ASSERT_EQ(::mkfifo((folder_ + "/pipe").c_str(), 0600), 0);
  for (const auto& [path, cause] : {std::pair<std::string, const char*>("/proc/no/estimates.json", "No such file or directory"),
                                    {path_, "directory"}, {folder_ + "/file/estimates.json", "Not a directory"}, {folder_ + "/pipe", "neither a file"}, {"/dev/full/x", "Not a directory"}}) {
    EstimateStore unwritable(path, 1);
    unwritable.put(model("a"), ModelEstimator());
    const Status status = unwritable.save();
    for (const std::string& word : {path, std::string(cause), std::string("--estimates")}) EXPECT_NE(status.message().find(word), absl::string_view::npos) << status;
    EXPECT_TRUE(unwritable.find(model("a")).has_value());
  }
}

}  // namespace
}  // namespace shoal
