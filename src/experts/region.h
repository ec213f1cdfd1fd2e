// Memory that two processes of one machine share.
//
//   [0, 4096)   head: magic, and whether the owner sleeps; written by the owner alone
//   then        halves of slots, one for each lane, each from a new page; written by the peer alone
//
// The owner makes it (base/memory_file.h) and polls it; the peer maps it and writes.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "base/bell.h"
#include "base/memory_file.h"
#include "base/status.h"
#include "base/time.h"

namespace shoal {

struct SlotSizes {
  uint32_t lanes = 0;
  uint64_t half_bytes = 0;  // of each; the region is rounded to pages
};

class Region {
 public:
  // Of memory that only this process has; for halves that come over a stream.
  static StatusOr<std::unique_ptr<Region>> make_private(const SlotSizes& sizes);
  static StatusOr<std::unique_ptr<Region>> make_shared(const SlotSizes& sizes);
  // A peer's; takes the descriptor over. InvalidArgument if it is not one of that size.
  static StatusOr<std::unique_ptr<Region>> map(int fd, const SlotSizes& sizes);
  ~Region();
  Region(const Region&) = delete;
  Region& operator=(const Region&) = delete;

  int fd() const { return file_->fd(); }  // REQUIRES: a shared one
  std::span<std::byte> half(uint32_t lane) const { return {base_ + kPage + lane * stride_, half_bytes_}; }
  uint64_t control(uint32_t lane) const { return word(lane).load(std::memory_order_acquire); }
  // REQUIRES: what the word speaks of is written.
  void store_control(uint32_t lane, uint64_t bits) const { word(lane).store(bits, std::memory_order_release); }

  // Dekker's pattern, both with a full fence between the store and the load: the owner says that it sleeps and looks once more; the peer
  // stores a word and looks whether the owner sleeps. One of them sees the other.
  void set_sleeping(bool sleeps) const {
    sleeping().store(sleeps ? 1 : 0, std::memory_order_relaxed);
    if (sleeps) std::atomic_thread_fence(std::memory_order_seq_cst);
  }
  bool owner_sleeps() const {
    std::atomic_thread_fence(std::memory_order_seq_cst);
    return sleeping().load(std::memory_order_relaxed) != 0;
  }

 private:
  static constexpr uint64_t kPage = 4096;

  Region(std::byte* base, uint64_t bytes, std::shared_ptr<const MemoryFile> file, const SlotSizes& sizes);
  static StatusOr<std::unique_ptr<Region>> map(std::shared_ptr<const MemoryFile> file, const SlotSizes& sizes);
  static uint64_t total(const SlotSizes& sizes);
  std::atomic<uint64_t>& word(uint32_t lane) const { return *reinterpret_cast<std::atomic<uint64_t>*>(base_ + kPage + lane * stride_); }
  std::atomic<uint32_t>& sleeping() const { return *reinterpret_cast<std::atomic<uint32_t>*>(base_ + 64); }

  std::byte* const base_;
  const uint64_t bytes_;
  const std::shared_ptr<const MemoryFile> file_;  // null: private
  const uint64_t half_bytes_, stride_;
};

}  // namespace shoal
