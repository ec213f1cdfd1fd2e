#include "base/memory_file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

namespace shoal {
namespace {

TEST(MemoryFile, KeepsItsSizeAndIsTheSameWhereverItIsMapped) {
  auto file = *MemoryFile::make("test", 10'000);
  EXPECT_EQ(file->bytes(), 10'000u);
  EXPECT_NE(::ftruncate(file->fd(), 5), 0);
  EXPECT_NE(::ftruncate(file->fd(), 20'000), 0);
  const auto copy = *MemoryFile::of(::dup(file->fd()));
  EXPECT_TRUE(copy->same_as(*file));
  EXPECT_FALSE((*MemoryFile::make("test", 10'000))->same_as(*file));
  const auto view = *MemoryView::map(copy);
  ASSERT_EQ(::pwrite(file->fd(), "x", 1, 9'999), 1);
  file.reset();
  EXPECT_EQ(view->bytes().back(), std::byte{'x'}) << "it is there as long as it is mapped";
}

TEST(MemoryFile, WhatCouldShrinkIsRefused) {
  const int open = ::memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  ASSERT_EQ(::ftruncate(open, 4096), 0);
  EXPECT_EQ(MemoryFile::of(::dup(open)).status().code(), StatusCode::kInvalidArgument);
  ASSERT_EQ(::fcntl(open, F_ADD_SEALS, F_SEAL_GROW | F_SEAL_SEAL), 0);
  EXPECT_EQ(MemoryFile::of(open).status().code(), StatusCode::kInvalidArgument);
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  EXPECT_EQ(MemoryFile::of(ends[0]).status().code(), StatusCode::kInvalidArgument) << "no memory at all";
  ::close(ends[1]);
  EXPECT_FALSE(MemoryFile::of(-1).ok());
}

}  // namespace
}  // namespace shoal
