// What the two sides of a model with experts cost on devices that nobody here has: rooflines from data sheets, with the
// efficiencies that published deployments reach. In aggregate: a layer at a time, every layer alike, no messages.
#pragma once

#include <cstdint>
#include <string>

#include "policy/overlap.h"

namespace shoal {

// A device as both sides need it. Rates of the data sheet.
struct ExpertDevice {
  std::string name;
  double bf16_flops = 0, fp8_flops = 0;
  double memory_bytes_per_second = 0, memory_bytes = 0;
  double nic_bytes_per_second = 0;   // to other machines, one way
  double peer_bytes_per_second = 0;  // within the machine, as measured copies reach it
  double price_per_hour = 0;         // dollars; list prices, for comparison only
  uint32_t per_machine = 8;
};
const ExpertDevice* find_expert_device(std::string_view name);  // H800, H20, H200; null for others

// Of what a data sheet says; chosen once, for every table.
struct ExpertEfficiency {
  double mla = 0.66, gemm = 0.70, memory = 0.80, nic = 0.80;
  double attention_fixed_s = 0;      // of the attention kernel, however small: published models of H800 take 50 us
  double experts_fixed_s = 0;        // of a batch of experts, however small: launches, collecting and scattering its rows
};

// DeepSeek-V3: shapes of its config; attention computed in the absorbed form, weights and dispatched rows as FP8, answers as BF16.
struct ExpertModelShape {
  std::string name = "DeepSeek-V3";
  uint32_t layers = 61, expert_layers = 58, experts = 256, experts_per_token = 8, groups_per_token = 4, groups = 8;
  double hidden = 7168, heads = 128, latent = 512 + 64;
  double attention_weights = 187e6, expert_weights = 3.0 * 7168 * 2048, shared_weights = 3.0 * 7168 * 2048;  // of a layer
  double cache_bytes = 2 * 576;      // of a token and layer
  double expert_bytes() const { return expert_weights; }                            // FP8
  double weight_bytes_attention() const { return layers * (attention_weights + shared_weights); }
};

class ExpertCosts {
 public:
  ExpertCosts(const ExpertModelShape& model, const ExpertEfficiency& efficiency) : model_(model), efficiency_(efficiency) {}
  const ExpertModelShape& model() const { return model_; }

  // Attention, gate and shared expert of `batch` tokens with `context` tokens each, one layer.
  double attention_s(const ExpertDevice& device, double batch, double context) const;
  // `rows` rows for `held` experts of one layer: weights of those that are active, or arithmetic, whichever is longer. `hottest`: the
  // rows of the busiest device over the mean.
  double experts_s(const ExpertDevice& device, double rows, double held, double hottest = 1) const;
  // Experts of which rows come to a device, if rows are spread evenly.
  static double active(double rows, double held);

  // One lane's way there and back between so many devices of each side. Direct: one copy per (token, expert). Two phases: one per
  // (token, machine of experts), then within the machine.
  struct Way {
    double dispatch = 0, combine = 0;          // seconds, of the slower side
    double attention_side = 0, expert_side = 0, machine = 0;  // dispatch + combine there; forwarding within a machine, beside
  };
  Way way(const ExpertDevice& attention, const ExpertDevice& experts, double batch, uint32_t n_attention, uint32_t n_experts, bool two_phases) const;
  // Likewise between n devices that do both: what is for a device's own machine stays within it.
  Way way_together(const ExpertDevice& device, double batch, uint32_t n, bool two_phases) const;
  // Machines that a token's experts are on, of `machines`: without limits of groups.
  double machines_hit(double machines) const;

  // Seconds of a layer of so many lanes on devices of either side: P(m), or forwarding within the machines of experts, whichever is longer.
  double apart_s(const ExpertDevice& attention, const ExpertDevice& experts, double batch, double context, uint32_t n_attention, uint32_t n_experts, uint32_t lanes, double hottest = 1) const;
  LaneTimes lane(const ExpertDevice& attention, const ExpertDevice& experts, double batch, double context, uint32_t n_attention, uint32_t n_experts, bool two_phases, double hottest = 1) const;

  // Sequences for whose caches a device has room beside its weights; `part`: of attention's weights that it holds.
  double sequences_max(const ExpertDevice& device, double context, double held_experts, double part = 1) const;

  // Everything on the same n devices, data-parallel attention and expert-parallel experts, `lanes` parts of the batch overlapped: seconds of
  // a layer for `batch` tokens a device. Each device sends rows and answers, and takes both: dispatch and combine share its links.
  double expert_parallel_s(const ExpertDevice& device, double batch, double context, uint32_t n, uint32_t lanes, double hottest = 1, bool two_phases = false) const;
  // n devices as one by tensor parallelism: `batch` tokens together.
  double tensor_parallel_s(const ExpertDevice& device, double batch, double context, uint32_t n) const;

 private:
  ExpertModelShape model_;
  ExpertEfficiency efficiency_;
};

}  // namespace shoal
