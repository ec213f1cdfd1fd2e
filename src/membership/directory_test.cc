#include "membership/directory_store.h"

#include <gtest/gtest.h>

#include <thread>

namespace shoal {
namespace {

constexpr TimePoint kStart{};
constexpr Duration kTtl = std::chrono::seconds(5);

TEST(DirectoryStore, AKeyIsWrittenOnlyOverTheRevisionThatIsExpected) {
  DirectoryStore store;
  const auto first = store.put_if("a", 0, "1", LeaseId());
  ASSERT_TRUE(first.ok());
  EXPECT_EQ(store.put_if("a", 0, "2", LeaseId()).status().code(), StatusCode::kAborted);
  const auto second = store.put_if("a", *first, "2", LeaseId());
  ASSERT_TRUE(second.ok());
  EXPECT_GT(*second, *first);
  EXPECT_EQ(store.find("a")->value, "2");
  EXPECT_EQ(store.remove_if("a", *first).code(), StatusCode::kAborted);
  EXPECT_TRUE(store.remove_if("a", *second).ok());
  EXPECT_TRUE(store.remove_if("a", 0).ok()) << "what is gone is no error";
  EXPECT_EQ(store.find("a"), nullptr);
}

TEST(DirectoryStore, KeysOfALeaseGoWithIt) {
  DirectoryStore store;
  const LeaseId lease = *store.grant(kTtl, kStart);
  ASSERT_TRUE(store.put_if("mine", 0, "1", lease).ok());
  ASSERT_TRUE(store.put_if("stays", 0, "1", LeaseId()).ok());
  EXPECT_EQ(store.expire(kStart + kTtl / 2), kStart + kTtl);
  ASSERT_TRUE(store.keep_alive(lease, kStart + kTtl / 2).ok());
  store.expire(kStart + kTtl);
  EXPECT_NE(store.find("mine"), nullptr) << "it was refreshed";
  EXPECT_EQ(store.expire(kStart + 2 * kTtl), kForever);
  EXPECT_EQ(store.find("mine"), nullptr);
  EXPECT_NE(store.find("stays"), nullptr);
  EXPECT_EQ(store.keep_alive(lease, kStart).code(), StatusCode::kNotFound);
  EXPECT_EQ(store.put_if("late", 0, "1", lease).status().code(), StatusCode::kNotFound);
}

TEST(DirectoryStore, WhatChangedIsToldInOrderAndOnlyOfThePrefix) {
  DirectoryStore store;
  const int64_t before = store.revision();
  ASSERT_TRUE(store.put("x/a", "1", LeaseId()).ok());
  ASSERT_TRUE(store.put("y/a", "1", LeaseId()).ok());
  ASSERT_TRUE(store.put("x/b", "2", LeaseId()).ok());
  ASSERT_TRUE(store.remove_if("x/a", store.revision_of("x/a")).ok());
  int64_t seen = 0;
  const auto events = store.since("x/", before, seen);
  ASSERT_TRUE(events.ok());
  ASSERT_EQ(events->size(), 3u);
  EXPECT_EQ((*events)[1].entry.key, "x/b");
  EXPECT_TRUE((*events)[2].removed);
  EXPECT_EQ(seen, store.revision());
  EXPECT_EQ(store.since("x/", seen + 1, seen).status().code(), StatusCode::kOutOfRange) << "of another directory";
}

TEST(DirectoryStore, WhatIsForgottenIsSaidToBe) {
  DirectoryStore store;
  const int64_t before = store.revision();
  for (size_t i = 0; i <= DirectoryStore::kEventsKept; ++i) ASSERT_TRUE(store.put("k", "v", LeaseId()).ok());
  int64_t seen = 0;
  EXPECT_EQ(store.since("", before, seen).status().code(), StatusCode::kOutOfRange);
}

TEST(DirectoryStore, NothingGrowsWithoutBound) {
  DirectoryStore store;
  EXPECT_EQ(store.put(std::string(DirectoryStore::kKeyBytesMax + 1, 'k'), "", LeaseId()).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(store.put("k", std::string(DirectoryStore::kValueBytesMax + 1, 'v'), LeaseId()).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(store.put("", "", LeaseId()).status().code(), StatusCode::kInvalidArgument);
  EXPECT_FALSE(store.grant(Duration(0), kStart).ok());
}

TEST(MemoryDirectory, AWatchHearsOfALeaseThatEndsWhileItWaits) {
  MemoryDirectory directory([] { return TimePoint(std::chrono::duration_cast<Duration>(std::chrono::steady_clock::now().time_since_epoch())); });
  const LeaseId lease = *directory.grant(std::chrono::milliseconds(50));
  ASSERT_TRUE(directory.put_if("a", 0, "1", lease).ok());
  const auto watch = *directory.watch("a", directory.list("")->revision);
  const auto events = watch->next(std::chrono::seconds(20));
  ASSERT_TRUE(events.ok());
  ASSERT_EQ(events->size(), 1u);
  EXPECT_TRUE(events->front().removed);
}

}  // namespace
}  // namespace shoal
