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
#include "base/check.h"
#include "tensor/tensor.h"

namespace shoal {
namespace {

constexpr uint64_t kAheadBytes = kDirectRingBytes;  // asked for before they are taken, and the size of the ring
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

// The bytes that a direct read of this extent takes in memory: it begins and ends on whole blocks of the file.
struct DirectExtent {
  uint64_t begin = 0;  // in the file, a multiple of the block
  uint64_t skip = 0;   // from there to the extent
  uint64_t bytes = 0;  // of memory, whole blocks
};

DirectExtent direct_extent(const MappedFile& file, std::span<const std::byte> extent) {
  const auto offset = static_cast<uint64_t>(extent.data() - file.bytes().data());
  const uint64_t begin = offset / kDirectBlock * kDirectBlock;
  return {begin, offset - begin, round_up(offset - begin + extent.size(), kDirectBlock)};
}

// Slots of memory, and readers that fill them in the order of the extents. With room for all of them each extent has its
// own, and stays. Else they are a ring: extent i is read into slot i % slots once extent i - slots was given back; whoever
// waits for one waits for a reader that waits for nobody who waits behind it.
class DirectSource : public WeightSource {
 public:
  static StatusOr<std::unique_ptr<WeightSource>> open(const Checkpoint& checkpoint, Extents extents, KeptWeights* kept) {
    std::unique_ptr<DirectSource> source(new DirectSource(std::move(extents)));
    for (const auto& extent : source->extents_) {
      const MappedFile* file = file_of(checkpoint, extent.data());
      source->files_.push_back(file);
      source->direct_.push_back(file == nullptr ? DirectExtent{} : direct_extent(*file, extent));
      if (file == nullptr || source->descriptors_.contains(file)) continue;
      ASSIGN_OR_RETURN(source->descriptors_[file], file->open_direct());
    }
    if (kept != nullptr) source->keep_in(*kept);
    if (source->kept_ == nullptr) RETURN_IF_ERROR(source->make_ring());
    for (size_t i = 0; i < kReaders && source->unread_ > 0; ++i) source->readers_.emplace_back([s = source.get()] { s->read_all(); });
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
    return std::span<const std::byte>(slot_memory(index) + direct_[index].skip, extents_[index].size());
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
    uint64_t at = 0;  // in the memory
    size_t extent = SIZE_MAX;
    bool ready = false, given_back = true;
    Status status;
  };

  explicit DirectSource(Extents extents) : extents_(std::move(extents)) {}

  std::byte* slot_memory(size_t index) { return aligned_ + slots_[index % slots_.size()].at; }

  Status make_ring() {
    uint64_t slot_bytes = kDirectBlock;
    for (const DirectExtent& extent : direct_) slot_bytes = std::max(slot_bytes, extent.bytes);
    slots_.resize(std::clamp<size_t>(kAheadBytes / slot_bytes, 2, kRingSlotsMax));
    for (size_t i = 0; i < slots_.size(); ++i) slots_[i].at = i * slot_bytes;
    ASSIGN_OR_RETURN(ring_, Buffer::allocate(slot_bytes * slots_.size() + kDirectBlock));
    const auto begin = reinterpret_cast<uintptr_t>(ring_.data());
    aligned_ = ring_.data() + (round_up(begin, kDirectBlock) - begin);
    unread_ = extents_.size();
    return OkStatus();
  }

  void keep_in(KeptWeights& kept) {
    uint64_t bytes = 0;
    std::vector<uint64_t> identity;
    for (size_t i = 0; i < extents_.size(); ++i) {
      if (files_[i] == nullptr) return;
      const auto file = files_[i]->identity();
      if (i == 0 || files_[i] != files_[i - 1]) identity.insert(identity.end(), file.begin(), file.end());
      identity.insert(identity.end(), {direct_[i].begin, direct_[i].skip, extents_[i].size()});
      slots_.push_back({.at = bytes});
      bytes += direct_[i].bytes;
    }
    if (kept.memory.empty() || kept.identity != identity || kept.have.size() != extents_.size()) {
      kept.memory = kept.room(bytes);
      kept.identity = std::move(identity);
      kept.have.assign(extents_.size(), 0);
    }
    if (kept.memory.empty()) return slots_.clear();
    CHECK_GE(kept.memory.size(), bytes);
    CHECK_EQ(reinterpret_cast<uintptr_t>(kept.memory.data()) % kDirectBlock, 0u);
    aligned_ = kept.memory.data();
    kept_ = &kept;
    for (size_t i = 0; i < extents_.size(); ++i) {
      if (kept.have[i] == 0) {
        ++unread_;
      } else {
        slots_[i].extent = i;
        slots_[i].ready = true;
      }
    }
  }

  void read_all() {
    while (true) {
      size_t index;
      {
        std::unique_lock lock(mutex_);
        index = next_++;
        if (index >= extents_.size()) return;
        Slot& slot = slots_[index % slots_.size()];
        if (stopping_) return;
        if (kept_ != nullptr && slot.ready) continue;
        changed_.wait(lock, [&] { return stopping_ || (slot.given_back && (index < slots_.size() || slot.extent == index - slots_.size())); });
        if (stopping_) return;
        slot = {slot.at, index, false, false, OkStatus()};
      }
      Status status = files_[index] == nullptr ? OkStatus() : read(index);
      {
        std::lock_guard lock(mutex_);
        Slot& slot = slots_[index % slots_.size()];
        if (kept_ != nullptr) kept_->have[index] = status.ok();
        slot.status = std::move(status);
        slot.ready = true;
      }
      changed_.notify_all();
    }
  }

  Status read(size_t index) {
    const MappedFile& file = *files_[index];
    const int fd = descriptors_.at(&file);
    const uint64_t begin = direct_[index].begin, wanted = direct_[index].skip + extents_[index].size(), whole = direct_[index].bytes;
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
  std::vector<DirectExtent> direct_;     // of each extent
  KeptWeights* kept_ = nullptr;          // holds the slots, one for each extent; else ring_ does
  size_t unread_ = 0;                    // extents that readers are for
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

StatusOr<std::unique_ptr<WeightSource>> open_weight_source(const Checkpoint& checkpoint, ModelIo io, Extents extents, KeptWeights* kept) {
  if (io == ModelIo::kDirect) return DirectSource::open(checkpoint, std::move(extents), kept);
  return std::make_unique<MappedSource>(checkpoint, std::move(extents));
}

}  // namespace shoal
