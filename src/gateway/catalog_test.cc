#include "gateway/catalog.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "gateway/test_support.h"

namespace shoal {
namespace {

std::vector<ModelEntry> three() { return {test::World::entry(0, "a"), test::World::entry(1, "b"), test::World::entry(2, "c")}; }

TEST(Catalog, FindsByNameAndAlias) {
  Catalog catalog(three(), test::World::load_text, 2);
  EXPECT_EQ(catalog.find("b")->id, ModelId(1));
  EXPECT_EQ(catalog.find("alias-2")->id, ModelId(2));
  EXPECT_EQ(catalog.find(""), nullptr);
}

TEST(Catalog, KeepsTheMostRecentlyUsedTextsOnly) {
  std::vector<std::string> loads;
  Catalog catalog(three(), [&](const ModelEntry& model) {
    loads.push_back(model.name);
    return test::World::load_text(model);
  }, 2);
  for (const char* name : {"a", "b", "a", "c", "a", "b"}) EXPECT_TRUE(catalog.text(*catalog.find(name)).ok());
  EXPECT_EQ(loads, (std::vector<std::string>{"a", "b", "c", "b"}));
}

TEST(Catalog, ATextInUseOutlivesItsPlaceInTheCache) {
  Catalog catalog(three(), test::World::load_text, 1);
  const auto text = *catalog.text(*catalog.find("a"));
  ASSERT_TRUE(catalog.text(*catalog.find("b")).ok());
  EXPECT_EQ(text->tokenizer->vocab_size(), test::kVocab);
}

TEST(Catalog, ManyCallersAtOnceLoadOnce) {
  std::atomic<int> loads{0};
  Catalog catalog(three(), [&](const ModelEntry& model) {
    ++loads;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    return test::World::load_text(model);
  }, 2);
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) threads.emplace_back([&] { EXPECT_TRUE(catalog.text(*catalog.find("a")).ok()); });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(loads.load(), 1);
}

TEST(Catalog, AFailedLoadIsTriedAgain) {
  int loads = 0;
  Catalog catalog(three(), [&](const ModelEntry& model) -> StatusOr<std::shared_ptr<const ModelText>> {
    if (++loads == 1) return data_loss("the disk hiccuped");
    return test::World::load_text(model);
  }, 2);
  EXPECT_FALSE(catalog.text(*catalog.find("a")).ok());
  EXPECT_TRUE(catalog.text(*catalog.find("a")).ok());
}

}  // namespace
}  // namespace shoal
