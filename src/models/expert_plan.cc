#include "models/expert_plan.h"

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "base/bytes.h"
#include "base/check.h"
#include "models/cpu_step.h"
#include "models/weights.h"
#include "tensor/tensor.h"

namespace shoal {
namespace {

constexpr uint64_t kPieceBytes = 256 << 10;  // packed by a thread at a time

}  // namespace

void gate_experts(const Kernels& kernels, ThreadPool& threads, const ExpertGate& of, uint32_t rows, uint64_t width, const float* up, const ExpertInput& gate) {
  for_rows(threads, rows, width * 4, [&](uint32_t i) {
    float* const g = gate.x + i * width;
    const float* const u = up + i * width;
    if (of.limit > 0) {
      kernels.clamped_mul(g, u, of.alpha, of.limit, width, g);
    } else {
      activate_row(kernels, of.activation, g, u, width, g);
    }
    if (gate.quantized != nullptr) kernels.quantize_row(g, width, gate.quantized + i * quant_row_stride(width));
  });
}

void HeldExpert::Free::operator()(std::byte* memory) const { std::free(memory); }

ExpertPlan::ExpertPlan(std::shared_ptr<const WeightLayout> layout, std::shared_ptr<const DecoderParts> keeps, std::vector<LayerExperts> layers,
                       std::vector<uint32_t> numbers, uint32_t hidden, uint32_t used)
    : layout_(std::move(layout)), keeps_(std::move(keeps)), layers_(std::move(layers)), numbers_(std::move(numbers)), hidden_(hidden), used_(used) {
  CHECK(!layers_.empty());
}

bool ExpertPlan::gated() const { return !layers_.front().places->up.empty(); }

uint32_t ExpertPlan::width() const { return layers_.front().places->gate.front().matrix.rows; }

ExpertGate ExpertPlan::gate() const {
  const LayerExperts& first = layers_.front();
  return {first.activation, first.places->gate_alpha, first.places->gate_limit};
}

uint64_t ExpertPlan::bytes(uint32_t layer, uint32_t expert) const { return layout_->experts()[layers_[layer].places->first + expert].bytes; }

uint64_t ExpertPlan::bytes_max(uint32_t layer) const {
  uint64_t most = 0;
  for (uint32_t expert = 0; expert < experts(); ++expert) most = std::max(most, bytes(layer, expert));
  return most;
}

StatusOr<std::shared_ptr<const HeldExpert>> ExpertPlan::load(uint32_t layer, uint32_t index, ThreadPool& threads) const {
  CHECK(layer < layers() && index < experts());
  const ExpertPlaces& places = *layers_[layer].places;
  const WeightLayout::Expert& expert = layout_->experts()[places.first + index];
  auto held = std::make_shared<HeldExpert>();
  held->bytes_ = expert.bytes;
  held->memory_.reset(static_cast<std::byte*>(std::aligned_alloc(kTensorAlignment, round_up(expert.bytes, kTensorAlignment))));
  if (held->memory_ == nullptr) return resource_exhausted("no memory of ", format_bytes(expert.bytes), " for an expert");
  const MatrixPlace* const matrices[] = {&places.gate[index], places.up.empty() ? nullptr : &places.up[index], &places.down[index]};
  LinearOutput* const outputs[] = {&held->gate_, &held->up_, &held->down_};
  size_t biases = 0;
  for (const MatrixPlace* place : matrices) biases += place != nullptr && place->bias ? place->bias->size : 0;
  held->biases_.reserve(biases);  // they stay where they are
  for (size_t i = 0; i < std::size(matrices); ++i) {
    if (matrices[i] == nullptr) continue;
    const MatrixPlace& place = *matrices[i];
    std::byte* const at = held->memory_.get() + (place.offset - expert.offset);
    const uint64_t panel = panel_bytes(place.matrix.format, place.matrix.columns);
    const size_t panels = place.matrix.panels(), step = std::max<uint64_t>(kPieceBytes / panel, 1);
    threads.parallel_for(div_up(panels, step), [&](size_t piece, int) {
      for (size_t p = piece * step; p < std::min(panels, (piece + 1) * step); ++p) layout_->make_panel(place.index, static_cast<uint32_t>(p), at + p * panel);
    });
    outputs[i]->matrix = place.matrix;
    outputs[i]->matrix.data = at;
    if (!place.bias) continue;
    const std::vector<float> bias = layout_->read(*place.bias);
    outputs[i]->matrix.bias = held->biases_.data() + held->biases_.size();
    held->biases_.insert(held->biases_.end(), bias.begin(), bias.end());
  }
  RETURN_IF_ERROR(layout_->check());
  return std::shared_ptr<const HeldExpert>(std::move(held));
}

std::span<float> ExpertCompute::input(const ExpertPlan& plan, uint32_t rows) {
  input_.resize(uint64_t{rows} * plan.hidden());
  return input_;
}

std::span<const float> ExpertCompute::run(const ExpertPlan& plan, std::span<const Group> groups, std::span<const float> weights) {
  const uint64_t hidden = plan.hidden(), width = plan.width(), rows = input_.size() / hidden;
  ExpertRoutes routes;
  std::vector<LinearOutput> gates, ups, downs;
  for (const Group& group : groups) {
    routes.active.push_back({static_cast<uint32_t>(gates.size()), static_cast<uint32_t>(routes.routed.size()), group.rows});
    routes.routed.resize(routes.routed.size() + group.rows);
    gates.push_back(group.expert->gate());
    if (plan.gated()) ups.push_back(group.expert->up());
    downs.push_back(group.expert->down());
  }
  CHECK_EQ(routes.routed.size(), rows);
  gate_.resize(rows * width), up_.resize(rows * width), out_.resize(rows * hidden);
  quantized_.resize(rows * quant_row_stride(std::max(hidden, width)));
  if (plan.weigh_input()) {
    CHECK_EQ(weights.size(), rows);
    for_rows(threads_, static_cast<uint32_t>(rows), hidden, [&](uint32_t i) { kernels_.scale(input_.data() + i * hidden, weights[i], hidden); });
  }
  const ExpertOutput both[] = {{gates, gate_.data()}, {ups, up_.data()}}, down[] = {{downs, out_.data()}};
  const auto gate_up = std::span(both).first(plan.gated() ? 2 : 1);
  const auto count = static_cast<uint32_t>(rows);
  const ExpertInput given = {input_.data(), taken({nullptr, quantized_.data()}, routes, gate_up).quantized};
  quantize_rows(kernels_, threads_, count, hidden, given);
  expert_linear(kernels_, threads_, routes, given, gate_up);
  const ExpertInput gated = {gate_.data(), taken({nullptr, quantized_.data()}, routes, down).quantized};
  gate_experts(kernels_, threads_, plan.gate(), count, width, up_.data(), gated);
  expert_linear(kernels_, threads_, routes, gated, down);
  return out_;
}

}  // namespace shoal
