#include "sim/expert_costs.h"

#include <algorithm>
#include <cmath>
#include <iterator>

namespace shoal {
namespace {

constexpr double kAnswerBytes = 2, kRowBytes = 1;  // of a channel: BF16 back, FP8 there

const ExpertDevice kDevices[] = {
    {"H800", 989e12, 1979e12, 3352e9, 80e9, 50e9, 160e9, 3.6, 8},
    {"H200", 989e12, 1979e12, 4800e9, 141e9, 50e9, 360e9, 5.0, 8},
    {"H20", 148e12, 296e12, 4000e9, 96e9, 50e9, 360e9, 2.6, 8},
};

constexpr double kReduceSeconds = 30e-6;  // of an all-reduce between machines, however small

}  // namespace

const ExpertDevice* find_expert_device(std::string_view name) {
  const auto found = std::find_if(std::begin(kDevices), std::end(kDevices), [&](const ExpertDevice& d) { return d.name == name; });
  return found == std::end(kDevices) ? nullptr : found;
}

double ExpertCosts::attention_s(const ExpertDevice& d, double batch, double context) const {
  const double memory = d.memory_bytes_per_second * efficiency_.memory, gemm = d.fp8_flops * efficiency_.gemm;
  const double scores = 2 * model_.heads * (model_.latent + 512) * context * batch / (d.bf16_flops * efficiency_.mla);
  const double cache = model_.cache_bytes * context * batch / memory;
  const auto matrices = [&](double weights) { return std::max(weights / memory, 2 * weights * batch / gemm); };
  const double gate = model_.hidden * model_.experts / memory;
  return std::max(scores, cache) + matrices(model_.attention_weights) + matrices(model_.shared_weights) + gate + efficiency_.attention_fixed_s;
}

double ExpertCosts::active(double rows, double held) { return held <= 0 ? 0 : held * -std::expm1(-rows / held); }

double ExpertCosts::experts_s(const ExpertDevice& d, double rows, double held, double hottest) const {
  const double weights = active(rows * hottest, held) * model_.expert_bytes() / (d.memory_bytes_per_second * efficiency_.memory);
  const double arithmetic = rows * hottest * 2 * model_.expert_weights / (d.fp8_flops * efficiency_.gemm);
  return efficiency_.experts_fixed_s + std::max(weights, arithmetic);
}

// n = M (1 - C(E - E/M, k) / C(E, k)).
double ExpertCosts::machines_hit(double machines) const {
  const double here = model_.experts / machines;
  double none = 1;
  for (uint32_t i = 0; i < model_.experts_per_token; ++i) none *= std::max(0.0, (model_.experts - here - i) / (model_.experts - i));
  return machines * (1 - none);
}

ExpertCosts::Way ExpertCosts::way(const ExpertDevice& attention, const ExpertDevice& experts, double batch, uint32_t n_attention, uint32_t n_experts, bool two_phases) const {
  const double machines = std::ceil(static_cast<double>(n_experts) / experts.per_machine);
  const double copies = two_phases ? machines_hit(machines) : model_.experts_per_token;
  const double sent = batch * copies * model_.hidden / (attention.nic_bytes_per_second * efficiency_.nic);
  const double taken = batch * copies * model_.hidden * n_attention / n_experts / (experts.nic_bytes_per_second * efficiency_.nic);
  Way way;
  way.attention_side = sent * (kRowBytes + kAnswerBytes);
  way.expert_side = taken * (kRowBytes + kAnswerBytes);
  way.dispatch = std::max(sent, taken) * kRowBytes;
  way.combine = std::max(sent, taken) * kAnswerBytes;
  if (two_phases) {  // of what came to a device, what its neighbours compute
    const double g = experts.per_machine, tokens = batch * copies * n_attention / n_experts;
    const double reached = g * (1 - std::pow(1 - 1 / g, model_.experts_per_token / copies)) * (g - 1) / g;
    way.machine = tokens * reached * model_.hidden * (kRowBytes + kAnswerBytes) / experts.peer_bytes_per_second;
  }
  return way;
}

// Beside what DeepEP measured on H800 (its README: 128 tokens a device, FP8 there, BF16 back): EP16 313 us, EP32 428, EP64 487, EP128 561.
ExpertCosts::Way ExpertCosts::way_together(const ExpertDevice& d, double batch, uint32_t n, bool two_phases) const {
  Way way = this->way(d, d, batch, n, n, two_phases);
  const double here = 1 / std::ceil(static_cast<double>(n) / d.per_machine);
  if (!two_phases) way.machine = batch * model_.experts_per_token * here * model_.hidden * (kRowBytes + kAnswerBytes) / d.peer_bytes_per_second;
  for (double* part : {&way.dispatch, &way.combine, &way.attention_side, &way.expert_side}) *part *= 1 - here;
  return way;
}

LaneTimes ExpertCosts::lane(const ExpertDevice& attention, const ExpertDevice& experts, double batch, double context, uint32_t n_attention, uint32_t n_experts, bool two_phases, double hottest) const {
  const Way w = way(attention, experts, batch, n_attention, n_experts, two_phases);
  const double rows = batch * model_.experts_per_token * n_attention / n_experts;
  return {attention_s(attention, batch, context), experts_s(experts, rows, static_cast<double>(model_.experts) / n_experts, hottest), w.dispatch, w.combine};
}

double ExpertCosts::apart_s(const ExpertDevice& attention, const ExpertDevice& experts, double batch, double context, uint32_t n_attention, uint32_t n_experts, uint32_t lanes, double hottest) const {
  const double machine = way(attention, experts, batch, n_attention, n_experts, /*two_phases=*/true).machine;
  return std::max(layer_seconds(lane(attention, experts, batch, context, n_attention, n_experts, true, hottest), lanes), lanes * machine);
}

double ExpertCosts::sequences_max(const ExpertDevice& d, double context, double held_experts, double part) const {
  const double weights = part * model_.weight_bytes_attention() + held_experts * model_.expert_layers * model_.expert_bytes();
  return std::max(0.0, (d.memory_bytes * 0.9 - weights) / (model_.cache_bytes * model_.layers * context));
}

double ExpertCosts::expert_parallel_s(const ExpertDevice& d, double batch, double context, uint32_t n, uint32_t lanes, double hottest, bool two_phases) const {
  const double part = batch / lanes;
  const LaneTimes t = lane(d, d, part, context, n, n, false, hottest);
  const Way w = way_together(d, part, n, two_phases);
  // Attention and experts share the device: what a lane computes is their sum, and its rows are away for the way alone.
  return std::max(layer_seconds({t.attention + t.experts, 0, w.dispatch, w.combine}, lanes, Wire::kOneStream), lanes * w.machine);
}

double ExpertCosts::tensor_parallel_s(const ExpertDevice& d, double batch, double context, uint32_t n) const {
  const double memory = d.memory_bytes_per_second * efficiency_.memory, gemm = d.fp8_flops * efficiency_.gemm;
  const double scores = 2 * model_.heads / n * (model_.latent + 512) * context * batch / (d.bf16_flops * efficiency_.mla);
  const double cache = model_.cache_bytes * context * batch / memory;  // the latent is one for all heads: everybody reads all of it
  const double dense = model_.attention_weights + model_.shared_weights;
  const double matrices = std::max(dense / n / memory, 2 * dense / n * batch / gemm);
  const double rows = batch * model_.experts_per_token;
  const double experts = efficiency_.experts_fixed_s + std::max(active(rows, model_.experts) * model_.expert_weights / n / memory, 2 * model_.expert_weights / n * rows / gemm);
  const double reduce = 2 * (kReduceSeconds + 2.0 * (n - 1) / n * batch * model_.hidden * kAnswerBytes / (d.nic_bytes_per_second * d.per_machine * efficiency_.nic));
  return std::max(scores, cache) + matrices + experts + reduce + efficiency_.attention_fixed_s;
}

}  // namespace shoal
