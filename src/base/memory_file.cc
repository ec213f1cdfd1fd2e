#include "base/memory_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/bytes.h"

namespace shoal {
namespace {

constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

}  // namespace

StatusOr<std::shared_ptr<const MemoryFile>> MemoryFile::make(const char* name, uint64_t bytes) {
  const int fd = ::memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (fd < 0) return unavailable("no shared memory: ", std::strerror(errno));
  if (::ftruncate(fd, static_cast<off_t>(bytes)) != 0 || ::fcntl(fd, F_ADD_SEALS, kSeals) != 0) {
    const Status why = resource_exhausted("no shared memory of ", format_bytes(bytes), ": ", std::strerror(errno));
    ::close(fd);
    return why;
  }
  return of(fd);
}

StatusOr<std::shared_ptr<const MemoryFile>> MemoryFile::of(int fd) {
  struct stat info{};
  if (::fstat(fd, &info) != 0 || info.st_size <= 0 || (::fcntl(fd, F_GET_SEALS) & kSeals) != kSeals) {
    ::close(fd);
    return invalid_argument("the memory that a peer shares is not sealed");
  }
  return std::shared_ptr<const MemoryFile>(new MemoryFile(fd, static_cast<uint64_t>(info.st_size), info.st_dev, info.st_ino));
}

MemoryFile::~MemoryFile() { ::close(fd_); }

StatusOr<std::shared_ptr<const MemoryView>> MemoryView::map(std::shared_ptr<const MemoryFile> file) {
  void* const base = ::mmap(nullptr, file->bytes(), PROT_READ, MAP_SHARED, file->fd(), 0);
  if (base == MAP_FAILED) return resource_exhausted("no addresses to map ", format_bytes(file->bytes()), " of shared memory: ", std::strerror(errno));
  ::madvise(base, file->bytes(), MADV_HUGEPAGE);  // without it the same works, slower
  return std::shared_ptr<const MemoryView>(new MemoryView(std::move(file), static_cast<const std::byte*>(base)));
}

MemoryView::~MemoryView() { ::munmap(const_cast<std::byte*>(base_), file_->bytes()); }

}  // namespace shoal
