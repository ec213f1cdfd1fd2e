#include "models/step.h"

#include <algorithm>
#include <utility>

#include "base/bytes.h"
#include "base/check.h"
#include "tensor/tensor.h"

namespace shoal {
namespace {

uint64_t widest_input(const StepShape& s) { return std::max({s.hidden, s.q_width, s.mlp_width, s.expert_width, s.latent_query, s.embedded.width, s.raw, s.mixed, s.mixer_values}); }

// Of the largest input of a product: rows as they are, routed to experts, or by head.
uint64_t quant_blocks(const StepShape& s, uint64_t rows, uint64_t logit_rows) {
  return std::max({std::max(rows, logit_rows) * quant_row_stride(widest_input(s)), rows * s.experts_used * quant_row_stride(std::max(s.hidden, s.expert_width)),
                   rows * s.latent_heads * quant_row_stride(s.latent_width)});
}

// Hands out aligned pieces of a workspace, or counts them.
class Carver {
 public:
  explicit Carver(DeviceAddress base) : base_(base) {}
  template <typename T>
  DevicePointer<T> take(uint64_t count) {
    const uint64_t at = used_;
    used_ += round_up(count * sizeof(T), kTensorAlignment);
    return (base_ + at).as<T>();
  }
  uint64_t used() const { return used_; }

 private:
  DeviceAddress base_;
  uint64_t used_ = 0;
};

StepBuffers carve(const StepShape& s, uint64_t rows, uint64_t logit_rows, Carver& carver) {
  StepBuffers b{};
  b.x = carver.take<float>(rows * s.hidden);
  b.h = carver.take<float>(rows * s.hidden);
  b.y = carver.take<float>(rows * s.hidden);
  b.q = carver.take<float>(rows * s.q_width);
  b.k = carver.take<float>(rows * s.kv_width);
  b.v = carver.take<float>(rows * s.kv_width);
  b.attn = carver.take<float>(rows * s.q_width);
  for (uint32_t i = 0; i < s.spare; ++i) b.spare[i] = carver.take<float>(rows * s.hidden);
  b.raw = carver.take<float>(rows * s.raw);
  if (s.raw > 0) b.query_gate = carver.take<float>(rows * s.q_width);
  for (auto* buffer : {&b.mixed, &b.convolved}) *buffer = carver.take<float>(rows * s.mixed);
  for (auto* buffer : {&b.mixer_gate, &b.scanned, &b.timed}) *buffer = carver.take<float>(rows * s.mixer_values);
  for (auto* buffer : {&b.times, &b.decays}) *buffer = carver.take<float>(rows * s.mixer_times);
  b.betas = carver.take<float>(rows * s.mixer_heads);
  for (auto* buffer : {&b.embedded, &b.projected}) *buffer = carver.take<float>(rows * s.embedded.layers * s.embedded.width);
  b.gate = carver.take<float>(rows * s.mlp_width);
  b.up = carver.take<float>(rows * s.mlp_width);
  for (int which = 0; which < (s.local_rope ? 2 : 1); ++which) {
    b.cos[which] = carver.take<float>(rows * s.rope_half);
    b.sin[which] = carver.take<float>(rows * s.rope_half);
  }
  b.last = carver.take<float>(logit_rows * s.hidden);
  b.partial = carver.take<float>(s.partial_floats());
  if (s.quantized) b.quantized = carver.take<QuantBlock>(quant_blocks(s, rows, logit_rows));
  if (s.latent_heads > 0) {
    b.latent_q = carver.take<float>(rows * s.latent_query);
    b.latent_a = carver.take<float>(rows * s.latent_query);
    if (s.index_heads > 0) {
      b.index_queries = carver.take<float>(rows * s.index_width);
      b.index_keys = carver.take<float>(rows * (s.index_width / s.index_heads));
      b.index_weights = carver.take<float>(rows * s.index_heads);
      b.selected = carver.take<uint16_t>(rows * selected_words(s.context));
    }
  }
  if (s.experts == 0) return b;
  b.router = carver.take<float>(rows * s.experts);
  b.routed = carver.take<float>(rows * s.experts_used * s.hidden);
  b.expert_gate = carver.take<float>(rows * s.experts_used * s.expert_width);
  b.expert_up = carver.take<float>(rows * s.experts_used * s.expert_width);
  b.expert_out = carver.take<float>(rows * s.experts_used * s.hidden);
  return b;
}

}  // namespace

void KvLayout::add(KvLayer layer) {
  layer.offset = block_bytes;
  block_bytes += layer.heads * (key_bytes(layer) + value_bytes(layer));
  layer.index_offset = block_bytes;
  block_bytes += size_t{layer.index_dim} * kKvTokens * sizeof(float);
  layers.push_back(layer);
}

uint64_t StepShape::bytes(uint32_t rows, uint32_t logit_rows) const {
  Carver carver({});
  carve(*this, rows, logit_rows, carver);
  return carver.used() + kTensorAlignment;  // the workspace itself need not be aligned
}

StepBuffers carve_buffers(const StepShape& shape, uint32_t rows, uint32_t logit_rows, DeviceSpan workspace) {
  CHECK_GE(workspace.bytes, shape.bytes(rows, logit_rows));
  Carver carver({round_up(workspace.begin.address, kTensorAlignment)});
  return carve(shape, rows, logit_rows, carver);
}

BatchRows::BatchRows(const ForwardInput& input) {
  for (uint32_t s = 0; s < input.slices.size(); ++s) {
    const SequenceSlice& slice = input.slices[s];
    CHECK_GE(slice.blocks.size() * kTokensPerBlock, uint64_t{slice.position} + slice.rows);
    begin_.push_back(size());
    for (uint32_t row = 0; row < slice.rows; ++row) rows_.push_back({s, slice.position + row, size()});
  }
  CHECK_EQ(rows_.size(), input.tokens.size());
  for (const LogitsQuery& query : input.logits) CHECK_LT(query.row, size());
}

uint32_t BatchRows::find(uint32_t input_row) const {
  const auto found = std::lower_bound(rows_.begin(), rows_.end(), input_row, [](const Row& row, uint32_t wanted) { return row.input < wanted; });
  CHECK(found != rows_.end() && found->input == input_row);
  return static_cast<uint32_t>(found - rows_.begin());
}

void BatchRows::keep(std::span<const uint32_t> input_rows) {
  std::vector<Row> kept;
  for (const uint32_t row : input_rows) kept.push_back(rows_[find(row)]);
  rows_ = std::move(kept);
}

std::vector<BatchRows::Run> BatchRows::runs(const ForwardInput& input) const {
  std::vector<Run> runs;
  for (uint32_t row = 0; row < size(); ++row) {
    const Row& here = rows_[row];
    if (row > 0 && here.input == rows_[row - 1].input + 1 && here.slice == rows_[row - 1].slice) {
      ++runs.back().rows;
    } else {
      runs.push_back({here.slice, here.position - input.slices[here.slice].position, 1, row});
    }
  }
  return runs;
}

}  // namespace shoal
