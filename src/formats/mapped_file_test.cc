#include "formats/mapped_file.h"

#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <thread>
#include <vector>

#include "formats/weight_source.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace shoal {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

// A file that lives as long as the test; byte i is i % 251.
class File {
 public:
  explicit File(size_t bytes) : path_(fs::temp_directory_path() / ("shoal_mapped_" + std::to_string(::getpid()) + "_" + std::to_string(bytes))) {
    std::string text(bytes, '\0');
    for (size_t i = 0; i < bytes; ++i) text[i] = static_cast<char>(i % 251);
    std::ofstream(path_, std::ios::binary) << text;
  }
  ~File() { fs::remove(path_); }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

bool as_written(std::span<const std::byte> bytes, size_t offset) {
  for (size_t i = 0; i < bytes.size(); ++i) {
    if (bytes[i] != static_cast<std::byte>((offset + i) % 251)) return false;
  }
  return true;
}

TEST(MappedFileTest, AFileThatIsTruncatedReadsAsZerosAndSaysSo) {
  const File file(1'000'003), other(50'021);
  const auto mapped = *MappedFile::open(file.path()), whole = *MappedFile::open(other.path());
  EXPECT_TRUE(as_written(mapped->bytes(), 0));
  EXPECT_TRUE(mapped->check().ok());
  fs::resize_file(file.path(), 500'000);
  EXPECT_TRUE(as_written(mapped->bytes().first(500'000), 0));
  size_t not_zero = 0;
  for (const std::byte b : mapped->bytes().subspan(503'808)) not_zero += b != std::byte{0};  // the file's last page is its own
  EXPECT_EQ(not_zero, 0u);
  EXPECT_EQ(mapped->check().code(), StatusCode::kDataLoss);
  EXPECT_THAT(std::string(mapped->check().message()), HasSubstr("truncated"));
  EXPECT_TRUE(as_written(whole->bytes(), 0));
  EXPECT_TRUE(whole->check().ok());
}

TEST(MappedFileTest, AFileThatIsWrittenToSaysSoAndOneThatIsReplacedIsWhole) {
  const File file(10'000);
  const auto mapped = *MappedFile::open(file.path());
  fs::rename(file.path(), file.path() + ".old");
  std::ofstream(file.path()) << "another";
  EXPECT_TRUE(mapped->check().ok());
  EXPECT_TRUE(as_written(mapped->bytes(), 0));
  fs::rename(file.path() + ".old", file.path());
  fs::last_write_time(file.path(), fs::last_write_time(file.path()) + std::chrono::seconds(1));
  EXPECT_EQ(mapped->check().code(), StatusCode::kDataLoss);
  EXPECT_THAT(std::string(mapped->check().message()), HasSubstr("written to"));
}

TEST(MappedFileTest, OtherThingsThanFilesAreRefused) {
  EXPECT_EQ(MappedFile::open("/dev/null").status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(MappedFile::open("/nonexistent").status().code(), StatusCode::kNotFound);
  const File empty(0);
  const auto mapped = MappedFile::open(empty.path());
  ASSERT_TRUE(mapped.ok());
  EXPECT_EQ((*mapped)->bytes().size(), 0u);
  EXPECT_TRUE((*mapped)->check().ok());
}

// Several threads take every extent, of all sizes and in more number than the ring has slots.
void take_all(const Checkpoint& checkpoint, ModelIo io, std::atomic<size_t>& wrong, std::atomic<size_t>& failed) {
  const std::span<const std::byte> bytes = checkpoint.files[0]->bytes();
  std::vector<std::span<const std::byte>> extents;
  for (size_t at = 0; at < bytes.size();) {
    const size_t count = std::min(bytes.size() - at, 1 + extents.size() * 7919 % 20'000);
    extents.push_back(bytes.subspan(at, count));
    at += count;
  }
  ASSERT_GT(extents.size(), 200u);
  auto source = open_weight_source(checkpoint, io, extents);
  ASSERT_TRUE(source.ok()) << source.status();
  std::atomic<size_t> next{0};
  const auto work = [&] {
    for (size_t i; (i = next++) < extents.size();) {
      const auto taken = (*source)->take(i);
      if (!taken.ok()) {
        ++failed;
        (*source)->stop();
        return;
      }
      wrong += taken->size() != extents[i].size() || !as_written(*taken, static_cast<size_t>(extents[i].data() - bytes.data()));
      (*source)->give_back(i);
    }
  };
  std::thread a(work), b(work), c(work);
  a.join(), b.join(), c.join();
}

TEST(WeightSourceTest, EveryExtentIsWhatTheFileHolds) {
  const File file(3'000'001);
  Checkpoint checkpoint;
  checkpoint.files.push_back(*MappedFile::open(file.path()));
  for (const ModelIo io : {ModelIo::kMapped, ModelIo::kDirect}) {
    if (io == ModelIo::kDirect && !checkpoint.files[0]->open_direct().ok()) GTEST_SKIP() << "no direct reads at " << file.path();
    std::atomic<size_t> wrong{0}, failed{0};
    take_all(checkpoint, io, wrong, failed);
    EXPECT_EQ(wrong.load(), 0u);
    EXPECT_EQ(failed.load(), 0u);
  }
}

TEST(WeightSourceTest, AFileThatEndsEarlyEndsTheLoadForEverybodyWhoWaits) {
  const File file(3'000'002);
  Checkpoint checkpoint;
  checkpoint.files.push_back(*MappedFile::open(file.path()));
  if (!checkpoint.files[0]->open_direct().ok()) GTEST_SKIP() << "no direct reads at " << file.path();
  fs::resize_file(file.path(), 2'000'000);
  std::atomic<size_t> wrong{0}, failed{0};
  take_all(checkpoint, ModelIo::kDirect, wrong, failed);
  EXPECT_EQ(wrong.load(), 0u);
  EXPECT_GT(failed.load(), 0u);
}

}  // namespace
}  // namespace shoal
