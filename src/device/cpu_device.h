// The host's processor and memory as a device.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "device/copy_queue.h"
#include "device/device.h"
#include "device/host_pages.h"
#include "tensor/tensor.h"

namespace shoal {

// A guarded device is the same at addresses that no host has: whoever reads through one, instead of asking the device or its
// backend, ends the process. Its weights come by copies, as on a device with memory of its own. It shows in tests that
// nothing above the backend knows what memory is made of.
enum class DeviceGuard : uint8_t { kNone, kGuarded };

class CpuDevice : public Device {
 public:
  // ResourceExhausted if the addresses cannot be had.
  static StatusOr<std::unique_ptr<CpuDevice>> make(uint32_t pages, DeviceGuard guard = DeviceGuard::kNone);

  // For the backend: where an address, of this device or of the host, is. Others use it at their peril.
  template <typename T>
  static T* at(DevicePointer<T> pointer) {
    return reinterpret_cast<T*>(pointer.address & ~kGuardBit);
  }
  bool guarded() const { return guard_ != 0; }

  uint32_t pages() const override { return pages_->pages(); }
  StatusOr<DeviceSpan> map(std::span<const PageRange> pages) override;
  void unmap(DeviceSpan memory) override;
  uint32_t fresh(std::span<const PageRange> pages) override { return guarded() ? 0 : pages_->fresh(pages); }
  void give_back(std::span<const PageRange> pages) override { pages_->give_back(pages); }
  bool populate(uint32_t ahead) override { return pages_->populate(ahead); }
  StatusOr<DeviceSpan> allocate(uint64_t bytes) override;
  void copy(CopyJob job) override { copies_.start(std::move(job)); }
  void give_way() const override { copies_.give_way(); }
  void end_copies() override { copies_.end(); }
  StatusOr<std::unique_ptr<PagedMemory>> make_host_tier(uint32_t pages, std::shared_ptr<const MemoryFile> memory) override;

 private:
  // Above what user addresses of x86-64 (47 bits) and 64-bit Arm (48) hold, below the byte that Arm ignores.
  static constexpr uint64_t kGuardBit = uint64_t{1} << 54;

  CpuDevice(std::unique_ptr<HostPages> pages, DeviceGuard guard)
      : pages_(std::move(pages)), guard_(guard == DeviceGuard::kGuarded ? kGuardBit : 0) {}
  DeviceSpan span(std::span<std::byte> memory) const { return {{host_address(memory.data()).address | guard_}, memory.size()}; }

  const std::unique_ptr<HostPages> pages_;
  const uint64_t guard_;
  std::mutex mutex_;
  std::vector<Buffer> buffers_;  // what allocate() gave
  CopyQueue copies_{at<std::byte>};
};

}  // namespace shoal
