// Memory that processes of one machine can share: a memfd that can neither shrink nor grow. A mapping of it stays valid whatever becomes
// of the process that made it, and never faults for want of a page.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "base/status.h"

namespace shoal {

class MemoryFile {
 public:
  // Of zeros; a page takes memory when it is first written. Unavailable, ResourceExhausted.
  static StatusOr<std::shared_ptr<const MemoryFile>> make(const char* name, uint64_t bytes);
  // What another process made; takes the descriptor over. InvalidArgument if it could shrink or grow.
  static StatusOr<std::shared_ptr<const MemoryFile>> of(int fd);
  ~MemoryFile();
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;

  int fd() const { return fd_; }
  uint64_t bytes() const { return bytes_; }
  bool same_as(const MemoryFile& other) const { return device_ == other.device_ && inode_ == other.inode_; }

 private:
  MemoryFile(int fd, uint64_t bytes, uint64_t device, uint64_t inode) : fd_(fd), bytes_(bytes), device_(device), inode_(inode) {}

  const int fd_;
  const uint64_t bytes_, device_, inode_;
};

// All of it, to read.
class MemoryView {
 public:
  static StatusOr<std::shared_ptr<const MemoryView>> map(std::shared_ptr<const MemoryFile> file);  // ResourceExhausted
  ~MemoryView();
  MemoryView(const MemoryView&) = delete;
  MemoryView& operator=(const MemoryView&) = delete;

  std::span<const std::byte> bytes() const { return {base_, file_->bytes()}; }
  const MemoryFile& file() const { return *file_; }

 private:
  MemoryView(std::shared_ptr<const MemoryFile> file, const std::byte* base) : file_(std::move(file)), base_(base) {}

  const std::shared_ptr<const MemoryFile> file_;
  const std::byte* const base_;
};

}  // namespace shoal
