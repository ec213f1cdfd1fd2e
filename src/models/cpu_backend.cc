#include <condition_variable>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "device/cpu_device.h"
#include "device/thread_pool.h"
#include "models/backend.h"
#include "models/cpu_step.h"

namespace shoal {
namespace {

// Where the weights are to be is where they are written.
class DirectSink : public WeightSink {
 public:
  explicit DirectSink(DeviceSpan memory) : memory_(memory) {}
  std::span<std::byte> take(uint64_t offset, uint64_t bytes) override { return {CpuDevice::at(memory_.part(offset, bytes).begin), bytes}; }
  void give_back(uint64_t, std::span<std::byte>) override {}
  void finish() override {}

 private:
  const DeviceSpan memory_;
};

// They are written to memory of the host and copied to their place, as into a device that the host cannot reach.
class CopyingSink : public WeightSink {
 public:
  CopyingSink(Device& device, DeviceSpan memory) : device_(device), memory_(memory) {}
  ~CopyingSink() override { finish(); }

  std::span<std::byte> take(uint64_t, uint64_t bytes) override {
    std::unique_lock lock(mutex_);
    less_.wait(lock, [&] { return under_way_.size() < kUnderWayMax; });
    std::vector<std::byte> room(bytes);
    const std::span<std::byte> out(room);
    under_way_.emplace(out.data(), std::move(room));
    return out;
  }
  void give_back(uint64_t offset, std::span<std::byte> written) override {
    const DeviceSpan place = memory_.part(offset, written.size());
    device_.copy({CopyLane::kWeightsIn, {{place.begin, host_address(written.data()), written.size()}}, [this, at = written.data()] {
                    std::lock_guard lock(mutex_);
                    under_way_.erase(at);
                    less_.notify_all();
                  }});
  }
  void finish() override {
    std::unique_lock lock(mutex_);
    less_.wait(lock, [&] { return under_way_.empty(); });
  }

 private:
  static constexpr size_t kUnderWayMax = 64;

  Device& device_;
  const DeviceSpan memory_;
  std::mutex mutex_;
  std::condition_variable less_;
  std::map<std::byte*, std::vector<std::byte>> under_way_;  // taken and not in their place
};

class CpuBackend : public Backend {
 public:
  CpuBackend(CpuDevice& device, ThreadPool& threads) : device_(device), compute_{best_kernels(), threads, {}} {}

  std::unique_ptr<Step> begin(const StepContext& context, const ForwardInput& input, DeviceSpan workspace, const UnpackedWeights* unpacked) override {
    return std::make_unique<CpuStep>(compute_, context, input, workspace, unpacked);
  }
  std::unique_ptr<WeightSink> sink(DeviceSpan memory) override {
    if (device_.guarded()) return std::make_unique<CopyingSink>(device_, memory);
    return std::make_unique<DirectSink>(memory);
  }

 private:
  CpuDevice& device_;
  CpuCompute compute_;
};

}  // namespace

std::unique_ptr<Backend> make_cpu_backend(CpuDevice& device, ThreadPool& threads) { return std::make_unique<CpuBackend>(device, threads); }

}  // namespace shoal
