// A whole file mapped for reading.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include "base/status.h"

namespace shoal {

// Immutable; the bytes stay valid as long as the object lives. A file that another process truncates while it is mapped
// raises SIGBUS on access: weights are replaced by renaming, never by writing into them.
class MappedFile {
 public:
  // NotFound, InvalidArgument (not a regular file) or Unavailable (cannot be mapped).
  static StatusOr<std::shared_ptr<const MappedFile>> open(const std::string& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  const std::string& path() const { return path_; }
  std::span<const std::byte> bytes() const { return {data_, size_}; }

 private:
  MappedFile(std::string path, const std::byte* data, size_t size) : path_(std::move(path)), data_(data), size_(size) {}

  std::string path_;
  const std::byte* data_;
  size_t size_;
};

}  // namespace shoal
