#include "host/content_hasher.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <future>

#include "absl/strings/escaping.h"
#include "base/json.h"
#include "host/sha256.h"
#include "host/weights_identity.h"

namespace shoal {
namespace {

namespace fs = std::filesystem;

class ContentHasherTest : public testing::Test {
 protected:
  ContentHasherTest() {
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }
  ~ContentHasherTest() override { fs::remove_all(folder_); }

  // A copy of a model, opened.
  std::shared_ptr<const Checkpoint> copy(const std::string& name) {
    fs::copy(SHOAL_SOURCE_DIR "/models/tiny-llama", folder_ / name);
    return *open_checkpoint(folder_ / name);
  }
  static ModelDigest::Content content(const Checkpoint& checkpoint) { return *content_of(checkpoint, [] { return true; }); }
  static bool never() { return false; }

  const fs::path folder_ = testing::TempDir() + "shoal_digests_" + std::to_string(getpid());
  const std::string kept_ = folder_ / "kept" / "digests.json";
};

void overwrite(const fs::path& path, std::streamoff at, char byte) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(at);
  file.put(byte);
}

TEST_F(ContentHasherTest, BytesAreHashedAsEverybodyDoes) {
  Sha256 hash;
  hash.add("ab", 2);
  hash.add("c", 1);
  const ModelDigest::Content result = hash.result();
  EXPECT_EQ(absl::BytesToHexString({reinterpret_cast<const char*>(result.data()), result.size()}),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

TEST_F(ContentHasherTest, CopiesHoldTheSameAndOneByteMakesAnother) {
  const auto first = copy("first"), second = copy("second");
  EXPECT_NE(first->files.at(0)->identity(), second->files.at(0)->identity());
  EXPECT_EQ(content(*first), content(*second));
  const fs::path weights = folder_ / "second" / "model.safetensors";
  overwrite(weights, static_cast<std::streamoff>(fs::file_size(weights)) - 1, '\x55');
  EXPECT_NE(content(**open_checkpoint(folder_ / "second")), content(*first));
  const auto third = copy("third");
  std::ofstream(folder_ / "third" / "config.json", std::ios::app) << "\n";
  EXPECT_NE(content(**open_checkpoint(folder_ / "third")), content(*first)) << "how the weights are read is a part of it";
  EXPECT_FALSE(content_of(*third, [] { return true; }).ok()) << "it was replaced";
  EXPECT_EQ(content_of(*first, never).status().code(), StatusCode::kCancelled);
}

TEST_F(ContentHasherTest, WhatWasReadIsKnownInTheNextRun) {
  const auto model = copy("model");
  std::promise<ModelDigest::Content> known;
  {
    ContentHasher hasher(std::make_shared<DigestStore>(kept_), never);
    EXPECT_FALSE(hasher.find(*model).has_value());
    hasher.want(model, [&](const ModelDigest::Content& c) { known.set_value(c); });
    EXPECT_EQ(known.get_future().get(), content(*model));
  }
  EXPECT_EQ(DigestStore(kept_).find(*model), content(*model));
  EXPECT_FALSE(DigestStore(kept_).find(*copy("other")).has_value()) << "files of another time";
  fs::last_write_time(folder_ / "model" / "model.safetensors", fs::file_time_type::clock::now());
  EXPECT_FALSE(DigestStore(kept_).find(**open_checkpoint(folder_ / "model")).has_value());
}

TEST_F(ContentHasherTest, ItWaitsWhileThereIsWorkAndEndsAtOnce) {
  const auto model = copy("model");
  std::atomic<bool> busy{true}, asked{false}, told{false};
  std::promise<void> known;
  const auto store = std::make_shared<DigestStore>("");
  {
    ContentHasher hasher(store, [&] { return asked = true, busy.load(); });
    hasher.want(model, [&](const ModelDigest::Content&) { told = true; });
    while (!asked) std::this_thread::yield();
  }
  EXPECT_FALSE(told);
  EXPECT_FALSE(store->find(*model).has_value());
  ContentHasher hasher(store, [&] { return busy.load(); });
  hasher.want(model, [&](const ModelDigest::Content&) { known.set_value(); });
  busy = false;
  known.get_future().wait();
  EXPECT_TRUE(store->find(*model).has_value());
}

TEST_F(ContentHasherTest, WithoutAStoreNothingIsRead) {
  ContentHasher hasher(nullptr, never);
  hasher.want(copy("model"), [](const ModelDigest::Content&) { ADD_FAILURE(); });
  EXPECT_FALSE(hasher.find(**open_checkpoint(folder_ / "model")).has_value());
}

TEST_F(ContentHasherTest, ASketchIsLookedAtOnceAndKeptAtTheEnd) {
  const auto model = copy("model");
  const ModelDigest::Content sketch = *DigestStore(kept_).sketch(*model);
  EXPECT_EQ(sketch, *sketch_of(*model));
  const std::string known = *read_file(kept_, DigestStore::kFileBytesMax);
  EXPECT_EQ(*DigestStore(kept_).sketch(*model), sketch);
  EXPECT_FALSE(DigestStore(kept_).find(*model).has_value()) << "a sketch is not the content";
  EXPECT_EQ(*read_file(kept_, DigestStore::kFileBytesMax), known);
}

TEST_F(ContentHasherTest, ADamagedFileOfDigestsIsLeftOutAndReplaced) {
  const auto model = copy("model");
  fs::create_directories(fs::path(kept_).parent_path());
  for (const char* text : {"", "{", "[]", R"({"version":2,"models":{}})", R"({"version":1,"models":{"x":"fa"}})", R"({"version":1,"models":{"x":3}})",
                           R"({"version":1,"models":3})"}) {
    std::ofstream(kept_) << text;
    DigestStore store(kept_);
    EXPECT_FALSE(store.find(*model).has_value()) << text;
    ASSERT_TRUE(store.put(*model, {1, 2}).ok()) << text;
    EXPECT_EQ(DigestStore(kept_).find(*model), (ModelDigest::Content{1, 2})) << text;
  }
  fs::remove(kept_);
  fs::create_directories(kept_ + "/in_the_way");
  const Status status = DigestStore(kept_).put(*model, {1});
  EXPECT_EQ(status.code(), StatusCode::kUnavailable);
  EXPECT_NE(status.message().find("--digests"), absl::string_view::npos) << status;
}

}  // namespace
}  // namespace shoal
