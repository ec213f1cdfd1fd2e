// A model's experts apart from the rest of it: what somebody needs who computes experts and nothing else. Each is loaded alone, by the
// extents of the same files, and computed by the kernels that compute it within a pass, so what it gives is the same bits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/status.h"
#include "device/thread_pool.h"
#include "kernels/expert_ops.h"
#include "kernels/kernels.h"
#include "models/step.h"

namespace shoal {

class WeightLayout;
struct DecoderParts;

// Of a layer; the places live as long as the layers.
struct LayerExperts {
  const ExpertPlaces* places = nullptr;
  Activation activation = Activation::kSilu;
};

// What an expert's gate does.
struct ExpertGate {
  Activation activation = Activation::kSilu;
  float alpha = 0, limit = 0;  // of the clamped gate; 0: none
};
// gate.x = what the gate makes of gate.x and up, [rows, width] each; quantised too where that is asked for.
void gate_experts(const Kernels& kernels, ThreadPool& threads, const ExpertGate& of, uint32_t rows, uint64_t width, const float* up, const ExpertInput& gate);

// The packed weights of one expert.
class HeldExpert {
 public:
  const LinearOutput& gate() const { return gate_; }
  const LinearOutput& up() const { return up_; }  // of a gated one
  const LinearOutput& down() const { return down_; }
  uint64_t bytes() const { return bytes_; }

 private:
  friend class ExpertPlan;
  struct Free {
    void operator()(std::byte* memory) const;
  };
  std::unique_ptr<std::byte[], Free> memory_;
  std::vector<float> biases_;
  LinearOutput gate_{}, up_{}, down_{};
  uint64_t bytes_ = 0;
};

// Immutable; any thread.
class ExpertPlan {
 public:
  // `keeps` is what the places are of; `numbers` are those that layers have in the model.
  ExpertPlan(std::shared_ptr<const WeightLayout> layout, std::shared_ptr<const DecoderParts> keeps, std::vector<LayerExperts> layers,
             std::vector<uint32_t> numbers, uint32_t hidden, uint32_t used);

  uint32_t layers() const { return static_cast<uint32_t>(layers_.size()); }  // that have experts
  uint32_t layer_number(uint32_t layer) const { return numbers_[layer]; }   // among all layers of the model
  uint32_t experts() const { return static_cast<uint32_t>(layers_.front().places->gate.size()); }  // of a layer
  bool gated() const;                       // two projections into the experts' width, the one a gate of the other
  uint32_t used() const { return used_; }  // by a row, at most
  uint32_t hidden() const { return hidden_; }
  uint32_t width() const;
  bool weigh_input() const { return layers_.front().places->weigh_input; }
  ExpertGate gate() const;
  uint64_t bytes(uint32_t layer, uint32_t expert) const;
  uint64_t bytes_max(uint32_t layer) const;  // of its largest

  // Reads and packs one. DataLoss naming the file if that was written to or cannot be read; ResourceExhausted without memory for it.
  StatusOr<std::shared_ptr<const HeldExpert>> load(uint32_t layer, uint32_t expert, ThreadPool& threads) const;

 private:
  const std::shared_ptr<const WeightLayout> layout_;
  const std::shared_ptr<const DecoderParts> keeps_;
  const std::vector<LayerExperts> layers_;
  const std::vector<uint32_t> numbers_;
  const uint32_t hidden_, used_;
};

// Rows of several experts, of any layers of one model. Used by one thread; owns its buffers.
class ExpertCompute {
 public:
  explicit ExpertCompute(ThreadPool& threads) : kernels_(best_kernels()), threads_(threads) {}

  struct Group {
    const HeldExpert* expert;
    uint32_t rows;
  };
  // Room for the rows of a batch: [rows, hidden], to be filled group after group.
  std::span<float> input(const ExpertPlan& plan, uint32_t rows);
  // What the experts make of them, [rows, hidden]; valid until the next input(). `weights` [rows]: of models that weigh the input.
  // REQUIRES: the groups have as many rows as input() was asked for; no expert is in two groups.
  std::span<const float> run(const ExpertPlan& plan, std::span<const Group> groups, std::span<const float> weights);

 private:
  const Kernels kernels_;
  ThreadPool& threads_;
  std::vector<float> input_, gate_, up_, out_;
  std::vector<QuantBlock> quantized_;
};

}  // namespace shoal
