#include <sys/resource.h>

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <thread>
#include <vector>

#include "base/rng.h"
#include "device/host_pages.h"
#include "device/memory_limits.h"

namespace shoal {
namespace {

TEST(HostPages, ASingleRangeIsMappedWhereItLives) {
  const auto device = *HostPages::make(8);
  const auto first = *device->map(std::vector<PageRange>{{0, 2}});
  const auto second = *device->map(std::vector<PageRange>{{2, 3}});
  EXPECT_EQ(first.data() + first.size(), second.data());
  EXPECT_EQ(reinterpret_cast<uintptr_t>(first.data()) % kPageBytes, 0u);
}

// Of this process alone, and of a file in memory.
class HostPagesTest : public testing::TestWithParam<bool> {
 protected:
  static std::shared_ptr<const MemoryFile> memory(uint32_t pages) { return GetParam() ? *MemoryFile::make("test", pages * kPageBytes) : nullptr; }
};
INSTANTIATE_TEST_SUITE_P(Memory, HostPagesTest, testing::Bool(), [](const auto& info) { return info.param ? "Shared" : "Private"; });

TEST_P(HostPagesTest, ScatteredPagesBecomeContiguousAndKeepTheirBytes) {
  const auto device = *HostPages::make(8, memory(8));
  std::vector<std::span<std::byte>> pages;
  for (uint32_t page = 0; page < 8; ++page) {
    pages.push_back(*device->map(std::vector<PageRange>{{page, 1}}));
    std::memset(pages.back().data(), static_cast<int>(page + 1), kPageBytes);
    device->unmap(pages.back());
  }
  const auto window = *device->map(std::vector<PageRange>{{6, 2}, {1, 1}, {3, 2}});
  ASSERT_EQ(window.size(), 5 * kPageBytes);
  const int expected[] = {7, 8, 2, 4, 5};
  for (size_t i = 0; i < 5; ++i) {
    EXPECT_EQ(std::to_integer<int>(window[i * kPageBytes]), expected[i]);
    EXPECT_EQ(std::to_integer<int>(window[(i + 1) * kPageBytes - 1]), expected[i]);
  }
  window[0] = std::byte{99};
  device->unmap(window);
  EXPECT_EQ(std::to_integer<int>((*device->map(std::vector<PageRange>{{6, 1}}))[0]), 99);
}

TEST_P(HostPagesTest, MemoryThatIsGivenBackComesAgainEmpty) {
  const auto device = *HostPages::make(4, memory(4));
  const auto all = *device->map(std::vector<PageRange>{{0, 4}});
  std::memset(all.data(), 7, all.size());
  device->unmap(all);
  device->give_back(std::vector<PageRange>{{1, 2}});
  std::vector<int> bytes;
  for (uint32_t page = 0; page < 4; ++page) bytes.push_back(std::to_integer<int>(all[page * kPageBytes + 5]));
  EXPECT_EQ(bytes, (std::vector<int>{7, 0, 0, 7}));
  EXPECT_FALSE(device->populate(4)) << "what is wanted elsewhere is not touched ahead";
}

TEST_P(HostPagesTest, PagesSurviveAnyNumberOfMoves) {
  const auto device = *HostPages::make(16, memory(16));
  Rng rng(3);
  for (uint32_t page = 0; page < 16; ++page) {
    std::memset((*device->map(std::vector<PageRange>{{page, 1}})).data(), static_cast<int>(page), kPageBytes);
  }
  for (int round = 0; round < 200; ++round) {
    std::vector<PageRange> ranges;
    std::vector<bool> taken(16);
    for (int i = 0; i < 5; ++i) {
      const auto page = static_cast<uint32_t>(rng.below(16));
      if (taken[page]) continue;
      taken[page] = true;
      ranges.push_back({page, 1});
    }
    const auto window = *device->map(ranges);
    for (size_t i = 0; i < ranges.size(); ++i) {
      ASSERT_EQ(std::to_integer<uint32_t>(window[i * kPageBytes + rng.below(kPageBytes)]), ranges[i].first);
    }
    device->unmap(window);
  }
}

TEST(HostPages, OthersReadAPageWhereItIsInTheFileWhereverItIsMapped) {
  const auto file = *MemoryFile::make("test", 6 * kPageBytes);
  const auto pages = *HostPages::make(6, file);
  const auto view = *MemoryView::map(file);
  const auto window = *pages->map(std::vector<PageRange>{{4, 1}, {1, 2}});
  for (size_t i = 0; i < window.size(); i += 4096) window[i] = static_cast<std::byte>(i / 4096 % 251);
  const auto same = [&](uint64_t page, size_t in_window, uint64_t count) {
    return std::memcmp(view->bytes().data() + page * kPageBytes, window.data() + in_window * kPageBytes, count * kPageBytes) == 0;
  };
  EXPECT_TRUE(same(4, 0, 1));
  EXPECT_TRUE(same(1, 1, 2));
  pages->unmap(window);
  const auto at_home = *pages->map(std::vector<PageRange>{{4, 1}});
  at_home[0] = std::byte{77};
  EXPECT_EQ(view->bytes()[4 * kPageBytes], std::byte{77});
  EXPECT_EQ(view->bytes()[0], std::byte{0}) << "never touched";
}

bool has_memory(const std::byte* page) {
  std::vector<unsigned char> there(kPageBytes / static_cast<size_t>(sysconf(_SC_PAGESIZE)));
  EXPECT_EQ(mincore(const_cast<std::byte*>(page), kPageBytes, there.data()), 0);
  return std::all_of(there.begin(), there.end(), [](unsigned char c) { return (c & 1) != 0; });
}

TEST(HostPages, PagesThatComeNextGetTheirMemoryBeforeTheyAreWritten) {
  const auto device = *HostPages::make(8);
  const auto used = *device->map(std::vector<PageRange>{{0, 2}});
  std::memset(used.data(), 7, used.size());
  std::byte* const next = used.data() + used.size();
  EXPECT_FALSE(has_memory(next));
  EXPECT_TRUE(device->populate(2));
  EXPECT_TRUE(device->populate(2));
  EXPECT_FALSE(device->populate(2));  // two ahead are ready
  EXPECT_TRUE(has_memory(next));
  EXPECT_TRUE(has_memory(next + kPageBytes));
  EXPECT_FALSE(has_memory(next + 2 * kPageBytes));
  EXPECT_EQ(std::to_integer<int>(used[used.size() - 1]), 7);
  const auto more = *device->map(std::vector<PageRange>{{2, 1}});
  EXPECT_EQ(std::to_integer<int>(more[0]), 0);
  int filled = 0;
  while (device->populate(100)) ++filled;
  EXPECT_EQ(filled, 4);  // to the end of the device, each once
}

TEST_P(HostPagesTest, PagesKeepTheirBytesWhileOthersAreFilled) {
  constexpr uint32_t kPages = 48;
  const auto device = *HostPages::make(kPages, memory(kPages));
  std::atomic<bool> stopping = false;
  std::thread filler([&] {
    while (!stopping) {
      if (!device->populate(8)) std::this_thread::yield();
    }
  });
  for (uint32_t round = 0; round < 3; ++round) {
    for (uint32_t page = 0; page + 3 < kPages; page += 3) {  // of pages that are filled next, or just then
      const auto window = *device->map(std::vector<PageRange>{{page + 2, 1}, {page, 1}});
      for (const size_t at : {size_t{0}, kPageBytes - 1, kPageBytes, 2 * kPageBytes - 1}) {
        EXPECT_EQ(std::to_integer<uint32_t>(window[at]), round == 0 ? 0 : page + round) << page;
        window[at] = std::byte(page + round + 1);
      }
      device->unmap(window);
    }
  }
  stopping = true;
  filler.join();
}

TEST(HostPages, KnowsHowMuchMemoryIsLeft) { EXPECT_GT(available_memory_bytes(), 0u); }

TEST(HostPages, CountsWhatIsReservedAsTakenWithinTheLimitsOfTheProcess) {
  const ProcessMemory before = process_memory();
  const auto device = *HostPages::make(32);
  EXPECT_GE(process_memory().taken, before.taken + 32 * kPageBytes);
  rlimit old{};
  ASSERT_EQ(getrlimit(RLIMIT_DATA, &old), 0);
  rlimit small = old;
  small.rlim_cur = process_memory().taken + 16 * kPageBytes;
  ASSERT_EQ(setrlimit(RLIMIT_DATA, &small), 0);
  EXPECT_LE(process_memory().left, 16 * kPageBytes);
  const auto refused = HostPages::make(64);
  EXPECT_EQ(setrlimit(RLIMIT_DATA, &old), 0);
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.status().message().find("ulimit -d"), std::string::npos);
}

}  // namespace
}  // namespace shoal
