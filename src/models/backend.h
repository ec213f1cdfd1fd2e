// What computes on a device: passes, as the operations of models/step.h, and the way of weights into its memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "base/status.h"
#include "device/device_span.h"
#include "models/pass.h"

namespace shoal {

class CpuDevice;
class Step;
struct StepContext;
class ThreadPool;
class UnpackedWeights;

// A model's memory while it is filled, each part of it once. Any thread.
class WeightSink {
 public:
  virtual ~WeightSink() = default;
  // Where bytes [offset, offset + bytes) of the model's memory are to be written. May wait for room.
  virtual std::span<std::byte> take(uint64_t offset, uint64_t bytes) = 0;
  // They are written. REQUIRES: `written` was returned by take(offset, ...).
  virtual void give_back(uint64_t offset, std::span<std::byte> written) = 0;
  // Waits until everything given back is in its place. REQUIRES: all that was taken was given back.
  virtual void finish() = 0;
};

class Backend {
 public:
  virtual ~Backend() = default;

  // `unpacked`: where weights are that are not in their place yet; null: all are. Everything that is passed outlives the step.
  virtual std::unique_ptr<Step> begin(const StepContext& context, const ForwardInput& input, DeviceSpan workspace,
                                      const UnpackedWeights* unpacked) = 0;
  // `memory` is the model's, of this backend's device.
  virtual std::unique_ptr<WeightSink> sink(DeviceSpan memory) = 0;
};

// The kernels of the host's processor (kernels/kernels.h), on all threads of the pool. Both outlive the backend.
std::unique_ptr<Backend> make_cpu_backend(CpuDevice& device, ThreadPool& threads);

}  // namespace shoal
