#include "formats/weight_source.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <cstring>
#include <map>
#include <mutex>
#include <thread>

#include "base/bytes.h"
#include "tensor/tensor.h"

namespace shoal {
namespace {

constexpr uint64_t kAheadBytes = 64 * kMiB;  // asked for before they are taken, and the size of the ring
constexpr uint64_t kDirectBlock = 4096;      // what offsets, lengths and addresses of direct reads are multiples of
constexpr size_t kReaders = 4;               // direct reads at a time
constexpr size_t kRingSlotsMax = 64;

using Extents = std::vector<std::span<const std::byte>>;

const MappedFile* file_of(const Checkpoint& checkpoint, const std::byte* at) {
  for (const auto& file : checkpoint.files) {
    if (file->holds(at)) return file.get();
  }
  return nullptr;
}

size_t largest(const Extents& extents) {
  size_t bytes = 1;
  for (const auto& extent : extents) bytes = std::max(bytes, extent.size());
  return bytes;
}

class MappedSource : public WeightSource {
 public:
  MappedSource(const Checkpoint& checkpoint, Extents extents)
      : checkpoint_(checkpoint), extents_(std::move(extents)), ahead_(std::max<size_t>(kAheadBytes / largest(extents_), 2)) {
    for (size_t i = 0; i < std::min(ahead_, extents_.size()); ++i) ask_for(i);
  }

  StatusOr<std::span<const std::byte>> take(size_t index) override {
    if (index + ahead_ < extents_.size()) ask_for(index + ahead_);
    const MappedFile* file = file_of(checkpoint_, extents_[index].data());
    if (file != nullptr && file->lost()) return file->check();
    return extents_[index];
  }
  void give_back(size_t) override {}
  void stop() override {}

 private:
  void ask_for(size_t index) const {
    if (const MappedFile* file = file_of(checkpoint_, extents_[index].data())) file->will_need(extents_[index]);
  }

  const Checkpoint& checkpoint_;
  const Extents extents_;
  const size_t ahead_;
};

// A ring of slots: extent i is read into slot i % slots once extent i - slots was given back. Readers take extents in
// order, so whoever waits for one waits for a reader that waits for nobody who waits behind it.
class DirectSource : public WeightSource {
 public:
  static StatusOr<std::unique_ptr<WeightSource>> open(const Checkpoint& checkpoint, Extents extents) {
    std::unique_ptr<DirectSource> source(new DirectSource(std::move(extents)));
    for (const auto& extent : source->extents_) {
      const MappedFile* file = file_of(checkpoint, extent.data());
      source->files_.push_back(file);
      if (file == nullptr || source->descriptors_.contains(file)) continue;
      ASSIGN_OR_RETURN(source->descriptors_[file], file->open_direct());
    }
    source->slot_bytes_ = round_up(largest(source->extents_), kDirectBlock) + kDirectBlock;
    source->slots_.resize(std::clamp<size_t>(kAheadBytes / source->slot_bytes_, 2, kRingSlotsMax));
    ASSIGN_OR_RETURN(source->ring_, Buffer::allocate(source->slot_bytes_ * source->slots_.size() + kDirectBlock));
    const uintptr_t begin = reinterpret_cast<uintptr_t>(source->ring_.data());
    source->aligned_ = source->ring_.data() + (round_up(begin, kDirectBlock) - begin);
    for (size_t i = 0; i < kReaders; ++i) source->readers_.emplace_back([s = source.get()] { s->read_all(); });
    return source;
  }

  ~DirectSource() override {
    stop();
    for (std::thread& reader : readers_) reader.join();
    for (const auto& [file, fd] : descriptors_) {
      if (fd >= 0) ::close(fd);
    }
  }

  StatusOr<std::span<const std::byte>> take(size_t index) override {
    if (files_[index] == nullptr) return extents_[index];
    Slot& slot = slots_[index % slots_.size()];
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return stopping_ || (slot.extent == index && slot.ready); });
    if (stopping_) return absl::CancelledError("the load was stopped");
    if (!slot.status.ok()) return slot.status;
    const uint64_t skip = offset_of(index) % kDirectBlock;
    return std::span<const std::byte>(slot_memory(index) + skip, extents_[index].size());
  }

  void give_back(size_t index) override {
    {
      std::lock_guard lock(mutex_);
      slots_[index % slots_.size()].given_back = true;
    }
    changed_.notify_all();
  }

  void stop() override {
    {
      std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    changed_.notify_all();
  }

 private:
  struct Slot {
    size_t extent = SIZE_MAX;
    bool ready = false, given_back = true;
    Status status;
  };

  explicit DirectSource(Extents extents) : extents_(std::move(extents)) {}

  uint64_t offset_of(size_t index) const { return static_cast<uint64_t>(extents_[index].data() - files_[index]->bytes().data()); }
  std::byte* slot_memory(size_t index) { return aligned_ + index % slots_.size() * slot_bytes_; }

  void read_all() {
    while (true) {
      size_t index;
      {
        std::unique_lock lock(mutex_);
        index = next_++;
        if (index >= extents_.size()) return;
        Slot& slot = slots_[index % slots_.size()];
        changed_.wait(lock, [&] { return stopping_ || (slot.given_back && (index < slots_.size() || slot.extent == index - slots_.size())); });
        if (stopping_) return;
        slot = {index, false, false, OkStatus()};
      }
      Status status = files_[index] == nullptr ? OkStatus() : read(index);
      {
        std::lock_guard lock(mutex_);
        Slot& slot = slots_[index % slots_.size()];
        slot.status = std::move(status);
        slot.ready = true;
      }
      changed_.notify_all();
    }
  }

  Status read(size_t index) {
    const MappedFile& file = *files_[index];
    const int fd = descriptors_.at(&file);
    const uint64_t begin = offset_of(index) / kDirectBlock * kDirectBlock, wanted = offset_of(index) + extents_[index].size() - begin;
    const uint64_t whole = round_up(wanted, kDirectBlock);
    std::byte* const to = slot_memory(index);
    for (uint64_t done = 0; done < wanted;) {
      const ssize_t count = ::pread(fd, to + done, whole - done, static_cast<off_t>(begin + done));
      if (count < 0 && errno == EINTR) continue;
      if (count < 0) return data_loss(file.path(), ": cannot be read at byte ", begin + done, " (", std::strerror(errno), ")");
      done += static_cast<uint64_t>(count);
      if (done < wanted && (count == 0 || done % kDirectBlock != 0)) {
        return data_loss(file.path(), ": ends at byte ", begin + done, "; it was truncated while it was being read. Write a model "
                         "beside the old one and rename it");
      }
    }
    return OkStatus();
  }

  const Extents extents_;
  std::vector<const MappedFile*> files_;  // of each extent; null for memory
  std::map<const MappedFile*, int> descriptors_;
  uint64_t slot_bytes_ = 0;
  Buffer ring_;
  std::byte* aligned_ = nullptr;  // first slot
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Slot> slots_;
  size_t next_ = 0;  // extent that no reader has begun
  bool stopping_ = false;
  std::vector<std::thread> readers_;
};

}  // namespace

StatusOr<std::unique_ptr<WeightSource>> open_weight_source(const Checkpoint& checkpoint, ModelIo io, Extents extents) {
  if (io == ModelIo::kDirect) return DirectSource::open(checkpoint, std::move(extents));
  return std::make_unique<MappedSource>(checkpoint, std::move(extents));
}

}  // namespace shoal
