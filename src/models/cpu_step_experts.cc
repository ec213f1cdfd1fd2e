// Experts on the host's processor: rows are gathered by expert, so that each expert's panels are read once for all of its rows.
#include <cmath>
#include <cstring>
#include <utility>

#include "kernels/expert_ops.h"
#include "kernels/scalar_math.h"
#include "models/cpu_step.h"
#include "models/expert_cache.h"
#include "models/expert_plan.h"
#include "models/expert_use.h"

namespace shoal {
namespace {

// Without the experts that give back what they are given.
ExpertRoutes computed(const ExpertPlaces& places, ExpertRoutes routes) {
  std::erase_if(routes.active, [&](const auto& active) { return active.expert >= places.gate.size(); });
  return routes;
}

// Of the experts that have rows; the others' stay empty.
std::vector<LinearOutput> active_outputs(const CpuWeights& weights, const ExpertPlaces& places, const std::vector<MatrixPlace>& matrices, const ExpertRoutes& routes) {
  const ExpertCache* const cache = weights.context.expert_cache;
  std::vector<LinearOutput> outputs(matrices.size());
  for (const auto& active : routes.active) {
    LinearOutput& result = outputs[active.expert] = weights.output(matrices[active.expert], nullptr, false);
    if (cache != nullptr) result.matrix.data = CpuDevice::at(cache->base(places, active.expert) + matrices[active.expert].offset);
  }
  return outputs;
}

// Where a model holds a part of its experts only: those that have rows get into slots, and what the next layer will probably ask
// for is read ahead, by what its router says of this layer's input (arXiv 2312.17238, section 3.2): `route` of a layer.
template <typename Route>
void bring_experts(ExpertCache& cache, const ExpertPlaces& places, const ExpertRoutes& routes, ThreadPool& threads, const Route& route) {
  const auto numbers = [](const ExpertRoutes& of) {
    std::vector<uint32_t> result;
    for (const auto& active : of.active) result.push_back(active.expert);
    return result;
  };
  cache.require(places, numbers(routes), threads);
  if (const ExpertPlaces* next = cache.after(places)) cache.expect(*next, numbers(computed(*next, route(*next))));
}

// out [routed rows, hidden] of experts that give back what they are given. Weights that were of the inputs are spent.
void give_back(const Kernels& kernels, const ExpertPlaces& places, const float* input, uint64_t hidden, ExpertRoutes& routes, float* out) {
  for (const auto& whole : routes.active) {
    if (whole.expert < places.gate.size()) continue;
    for (uint32_t i = whole.begin; i < whole.begin + whole.rows; ++i) {
      std::memcpy(out + i * hidden, input + routes.routed[i].row * hidden, hidden * sizeof(float));
      if (places.weigh_input) kernels.scale(out + i * hidden, routes.routed[i].weight, hidden);
    }
  }
  if (!places.weigh_input) return;
  for (auto& routed : routes.routed) routed.weight = 1.0f;
}

}  // namespace

ExpertRoutes CpuStep::route(const ExpertPlaces& places, const float* input) const {
  const RouterRule& rule = places.rule;
  float* const logits = CpuDevice::at(at_.router);
  const LinearOutput product = weights_.output(places.router, logits, false);
  shoal::linear(compute_.kernels, compute_.threads, {input, rows(), CpuDevice::at(at_.quantized), std::nullopt}, {&product, 1});
  std::span<const float> bias;
  if (places.selection_bias) bias = {weights_.vector(*places.selection_bias), rule.experts};
  const float* const scales = places.weight_scale ? weights_.vector(*places.weight_scale) : nullptr;
  std::vector<ExpertChoice> choices(size_t{rows()} * rule.used);
  for_rows(compute_.threads, rows(), uint64_t{rule.experts} * 16, [&](uint32_t row) {
    const auto chosen = std::span(choices).subspan(size_t{row} * rule.used, rule.used);
    choose_experts(rule, {logits + uint64_t{row} * rule.experts, rule.experts}, bias, chosen);
    if (scales == nullptr) return;
    for (ExpertChoice& choice : chosen) choice.weight *= scales[choice.expert];
  });
  ExpertRoutes routes;
  routes.assign(choices, rule.used, rule.experts);
  return routes;
}

std::optional<Exchange> CpuStep::experts(const ExpertPlaces& places, Activation activation, Floats asked, Floats from, Floats to) const {
  if (rows() == 0) return std::nullopt;
  const uint64_t hidden = context_.shape.hidden, width = context_.shape.expert_width;
  const float* const input = CpuDevice::at(from);
  float* const routed = CpuDevice::at(at_.routed);
  float* const gate = CpuDevice::at(at_.expert_gate);
  float* const up = CpuDevice::at(at_.expert_up);
  float* const out = CpuDevice::at(at_.expert_out);
  QuantBlock* const quantized = CpuDevice::at(at_.quantized);
  ExpertRoutes routes = route(places, CpuDevice::at(asked));
  const ExpertRoutes active = computed(places, routes);
  if (context_.expert_use != nullptr) context_.expert_use->note(places.first, active);
  if (context_.experts_elsewhere) {
    dispatched_ = std::move(routes);
    const auto experts = static_cast<uint32_t>(places.gate.size());
    return Exchange{places.first / experts, rows(), context_.shape.hidden, from, at_.expert_out, &dispatched_, experts, places.rule.experts};
  }
  if (context_.expert_cache != nullptr) {
    bring_experts(*context_.expert_cache, places, active, compute_.threads, [&](const ExpertPlaces& next) { return route(next, CpuDevice::at(asked)); });
  }
  const auto count = static_cast<uint32_t>(routes.routed.size());
  const auto gates = active_outputs(weights_, places, places.gate, active), ups = places.up.empty() ? std::vector<LinearOutput>() : active_outputs(weights_, places, places.up, active);
  const auto downs = active_outputs(weights_, places, places.down, active);
  const ExpertOutput both[] = {{gates, gate}, {ups, up}}, down[] = {{downs, out}};
  const auto gate_up = std::span(both).first(places.up.empty() ? 1 : 2);
  ExpertInput gathered = taken({routed, quantized}, active, gate_up);
  if (places.weigh_input) gathered.x = routed;
  gather_rows(compute_.kernels, compute_.threads, routes, places.rule.used, input, hidden, places.weigh_input, gathered);
  expert_linear(compute_.kernels, compute_.threads, active, gathered, gate_up);
  const ExpertInput gated = {gate, taken({gate, quantized}, active, down).quantized};
  gate_experts(compute_.kernels, compute_.threads, {activation, places.gate_alpha, places.gate_limit}, count, width, up, gated);
  expert_linear(compute_.kernels, compute_.threads, active, gated, down);
  give_back(compute_.kernels, places, input, hidden, routes, out);
  add_experts(compute_.kernels, compute_.threads, routes, places.rule.experts, places.rule.used, out, hidden, rows(), CpuDevice::at(to));
  return std::nullopt;
}

void CpuStep::combine(const ExpertPlaces& places, Floats from, Floats to) const {
  const uint64_t hidden = context_.shape.hidden;
  float* const out = CpuDevice::at(at_.expert_out);
  give_back(compute_.kernels, places, CpuDevice::at(from), hidden, dispatched_, out);
  add_experts(compute_.kernels, compute_.threads, dispatched_, places.rule.experts, places.rule.used, out, hidden, rows(), CpuDevice::at(to));
}

void CpuStep::add_gated(Floats from, const MatrixPlace& gate, Floats other, Floats to) const {
  const uint64_t hidden = context_.shape.hidden;
  float* const weights = CpuDevice::at(at_.router);
  const LinearOutput product = weights_.output(gate, weights, false);
  shoal::linear(compute_.kernels, compute_.threads, {CpuDevice::at(from), rows(), CpuDevice::at(at_.quantized), std::nullopt}, {&product, 1});
  float* const x = CpuDevice::at(to);
  const float* const y = CpuDevice::at(other);
  for_rows(compute_.threads, rows(), hidden, [&](uint32_t row) {
    const double logit = std::fmin(std::fmax(double{weights[row]}, -600.0), 600.0);
    const auto weight = static_cast<float>(1.0 / (1.0 + portable_exp(-logit)));
    compute_.kernels.add_scaled(x + row * hidden, weight, y + row * hidden, hidden);
  });
}

}  // namespace shoal
