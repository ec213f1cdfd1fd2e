#include "runner/kv_store.h"

#include <gtest/gtest.h>

#include <cstring>

#include "device/cpu_device.h"

namespace shoal {
namespace {

TEST(KvStore, TheRunsOfABlockAreItsBytesInThePagesOfTheMemory) {
  constexpr uint32_t kPages = 40;
  constexpr uint64_t kBlock = 3 * kPageBytes / 2;
  const uint32_t slab_pages = slab_pages_for(kBlock);
  ASSERT_GE(slab_pages, 3u);
  const auto file = *MemoryFile::make("test", kPages * kPageBytes);
  const auto device = *CpuDevice::make(1);
  const auto tier = *device->make_host_tier(kPages, file);
  const auto view = *MemoryView::map(file);
  KvStore store(*tier);
  // One slab in a row, and one whose pages lie apart, the last ones first.
  std::vector<PageRun> apart{{PageId(30), 1}, {PageId(20), slab_pages - 1}};
  ASSERT_TRUE(store.apply(std::vector<SlabChange>{{kBlock, 0, true, {{PageId(2), slab_pages}}}, {kBlock, 1, true, apart}}).ok());
  const auto blocks = static_cast<uint32_t>(2 * (slab_pages * kPageBytes / kBlock));
  for (uint32_t id = 0; id < blocks; ++id) std::memset(CpuDevice::at(store.block(kBlock, BlockId(id))), static_cast<int>(id + 1), kBlock);
  for (uint32_t id = 0; id < blocks; ++id) {
    uint64_t bytes = 0;
    for (const ByteRun& run : store.runs(kBlock, std::vector{BlockId(id)})) {
      const auto part = view->bytes().subspan(run.offset, run.bytes);
      EXPECT_EQ(part.front(), static_cast<std::byte>(id + 1));
      EXPECT_EQ(part.back(), static_cast<std::byte>(id + 1));
      bytes += run.bytes;
    }
    EXPECT_EQ(bytes, kBlock) << id;
  }
  EXPECT_EQ(store.runs(kBlock, std::vector{BlockId(0)}), (std::vector<ByteRun>{{2 * kPageBytes, kBlock}}));
  EXPECT_EQ(store.runs(kBlock, std::vector{BlockId(blocks / 2)}), (std::vector<ByteRun>{{30 * kPageBytes, kPageBytes}, {20 * kPageBytes, kBlock - kPageBytes}}));
}

}  // namespace
}  // namespace shoal
