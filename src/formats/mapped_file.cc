#include "formats/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "formats/fault_guard.h"

namespace shoal {
namespace {

int64_t modified_ns(const struct stat& info) { return int64_t{info.st_mtim.tv_sec} * 1'000'000'000 + info.st_mtim.tv_nsec; }

FileIdentity identity_of(const struct stat& info) {
  return {static_cast<uint64_t>(info.st_dev), static_cast<uint64_t>(info.st_ino), static_cast<uint64_t>(info.st_size), static_cast<uint64_t>(modified_ns(info))};
}

// Closes what it holds unless it was given on.
struct Descriptor {
  int fd;
  ~Descriptor() {
    if (fd >= 0) ::close(fd);
  }
  int release() { return std::exchange(fd, -1); }
};

}  // namespace

FileIdentity file_identity(const std::string& path) {
  struct stat info {};
  return ::stat(path.c_str(), &info) == 0 ? identity_of(info) : FileIdentity{};
}

MappedFile::MappedFile(std::string path, int fd, const std::byte* data, size_t size, size_t guard)
    : path_(std::move(path)), fd_(fd), data_(data), size_(size), guard_(guard) {
  struct stat info {};
  if (::fstat(fd_, &info) == 0) identity_ = identity_of(info);
}

StatusOr<std::shared_ptr<const MappedFile>> MappedFile::open(const std::string& path) {
  Descriptor file{::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)};  // does not wait for the other end of a pipe
  if (file.fd < 0) return not_found(path, ": cannot be opened (", std::strerror(errno), "); check the path and its permissions");
  struct stat info {};
  if (::fstat(file.fd, &info) != 0 || !S_ISREG(info.st_mode)) return invalid_argument(path, ": is not a regular file; name a file");
  const size_t size = static_cast<size_t>(info.st_size);
  void* data = nullptr;
  size_t guard = 0;
  if (size > 0) {
    data = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, file.fd, 0);
    if (data == MAP_FAILED) return unavailable(path, ": cannot be mapped (", std::strerror(errno), "); check the limits on address space");
    const auto guarded = guard_memory(data, size);
    if (!guarded.ok()) {
      ::munmap(data, size);
      return annotate(guarded.status(), path);
    }
    guard = *guarded;
  }
  return std::shared_ptr<const MappedFile>(new MappedFile(path, file.release(), static_cast<const std::byte*>(data), size, guard));
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) {
    unguard_memory(guard_);
    ::munmap(const_cast<std::byte*>(data_), size_);
  }
  ::close(fd_);
}

bool MappedFile::lost() const { return data_ != nullptr && memory_was_lost(guard_); }

Status MappedFile::check() const {
  if (lost()) {
    return data_loss(path_, ": could not be read to its end; it was truncated meanwhile, or the disk has an error. Write a model "
                     "beside the old one and rename it");
  }
  struct stat info {};
  if (::fstat(fd_, &info) != 0) return data_loss(path_, ": cannot be looked at any more (", std::strerror(errno), ")");
  if (static_cast<size_t>(info.st_size) != size_ || identity_of(info) != identity_) {
    return data_loss(path_, ": was written to while it was being read; load it again when it is whole. Write a model beside the "
                     "old one and rename it");
  }
  return OkStatus();
}

// By the descriptor, not by madvise(2) and mincore(2): those wait for whoever maps or unmaps something.
bool MappedFile::cached(std::span<const std::byte> part) const {
  char first = 0;
  iovec one{&first, 1};
  return ::preadv2(fd_, &one, 1, static_cast<off_t>(part.data() - data_), RWF_NOWAIT) == 1;
}

void MappedFile::will_need(std::span<const std::byte> part) const {
  if (cached(part)) return;  // one byte speaks for the part
  ::posix_fadvise(fd_, static_cast<off_t>(part.data() - data_), static_cast<off_t>(part.size()), POSIX_FADV_WILLNEED);
}

StatusOr<int> MappedFile::open_direct() const {
  const std::string same = "/proc/self/fd/" + std::to_string(fd_);  // whatever has happened to the name
  const int fd = ::open(same.c_str(), O_RDONLY | O_CLOEXEC | O_DIRECT);
  if (fd < 0) {
    return unavailable(path_, ": cannot be read past the system's cache (", std::strerror(errno), "); load with --model-io mmap");
  }
  return fd;
}

}  // namespace shoal
