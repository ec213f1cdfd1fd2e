// A whole file mapped for reading.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "base/status.h"

namespace shoal {

// Which file it is and of when: two that agree hold the same bytes, unless somebody has set a time back.
using FileIdentity = std::array<uint64_t, 4>;

// Of what is at the path now, links followed; zeros if nothing is.
FileIdentity file_identity(const std::string& path);

// Immutable; the bytes stay valid as long as the object lives. Reading them is always safe: where another process has
// truncated the file, or the disk cannot be read, they are zeros instead of a SIGBUS (formats/fault_guard.h), and check()
// tells. So whoever believes what was read asks check() afterwards.
class MappedFile {
 public:
  // NotFound, InvalidArgument (not a regular file), Unavailable (cannot be mapped) or ResourceExhausted.
  static StatusOr<std::shared_ptr<const MappedFile>> open(const std::string& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  const std::string& path() const { return path_; }
  std::span<const std::byte> bytes() const { return {data_, size_}; }
  bool holds(const std::byte* at) const { return at >= data_ && at < data_ + size_; }

  // DataLoss if the file was truncated, could not be read or was written to since it was opened. A file that another one
  // has replaced by rename is whole: this is still the old one.
  Status check() const;

  // Whether bytes were missing where somebody has read. Fast: for those who would rather not read on.
  bool lost() const;

  // Of when it was opened.
  const FileIdentity& identity() const { return identity_; }

  // Whether the system has the file in its cache where `part` begins: reading there would not wait for a disk.
  bool cached(std::span<const std::byte> part) const;

  // Asks the system to read these bytes of the file into its cache, without waiting. A hint.
  void will_need(std::span<const std::byte> part) const;

  // The same file opened for reads past the system's cache (O_DIRECT), as a descriptor that the caller closes. Unavailable
  // if the file system has no such reads.
  StatusOr<int> open_direct() const;

 private:
  MappedFile(std::string path, int fd, const std::byte* data, size_t size, size_t guard);

  std::string path_;
  int fd_;
  const std::byte* data_;
  size_t size_;
  size_t guard_;           // slot in the guard; meaningless for an empty file
  FileIdentity identity_{};
};

}  // namespace shoal
