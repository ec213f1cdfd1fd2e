#include "device/cpu_device.h"

#include <utility>

namespace shoal {
namespace {

class HostTierPages : public PagedMemory {
 public:
  explicit HostTierPages(std::unique_ptr<HostPages> pages) : pages_(std::move(pages)) {}

  uint32_t pages() const override { return pages_->pages(); }
  StatusOr<DeviceSpan> map(std::span<const PageRange> pages) override {
    ASSIGN_OR_RETURN(const std::span<std::byte> memory, pages_->map(pages));
    return DeviceSpan{host_address(memory.data()), memory.size()};
  }
  void unmap(DeviceSpan memory) override { pages_->unmap({CpuDevice::at(memory.begin), memory.bytes}); }
  void give_back(std::span<const PageRange> pages) override { pages_->give_back(pages); }

 private:
  const std::unique_ptr<HostPages> pages_;
};

}  // namespace

StatusOr<std::unique_ptr<CpuDevice>> CpuDevice::make(uint32_t pages, DeviceGuard guard) {
  ASSIGN_OR_RETURN(std::unique_ptr<HostPages> memory, HostPages::make(pages));
  return std::unique_ptr<CpuDevice>(new CpuDevice(std::move(memory), guard));
}

StatusOr<DeviceSpan> CpuDevice::map(std::span<const PageRange> pages) {
  ASSIGN_OR_RETURN(const std::span<std::byte> memory, pages_->map(pages));
  return span(memory);
}

void CpuDevice::unmap(DeviceSpan memory) { pages_->unmap({at(memory.begin), memory.bytes}); }

StatusOr<DeviceSpan> CpuDevice::allocate(uint64_t bytes) {
  ASSIGN_OR_RETURN(Buffer buffer, Buffer::allocate(bytes));
  std::lock_guard lock(mutex_);
  return span(buffers_.emplace_back(std::move(buffer)).span());
}

StatusOr<std::unique_ptr<PagedMemory>> CpuDevice::make_host_tier(uint32_t pages, std::shared_ptr<const MemoryFile> memory) {
  ASSIGN_OR_RETURN(std::unique_ptr<HostPages> tier, HostPages::make(pages, std::move(memory)));
  return std::make_unique<HostTierPages>(std::move(tier));
}

}  // namespace shoal
