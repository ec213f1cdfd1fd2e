#include "models/step.h"

#include <algorithm>
#include <cstring>

#include "base/bytes.h"
#include "base/check.h"
#include "kernels/pack.h"
#include "kernels/quant_codes.h"

namespace shoal {
namespace {

constexpr size_t kOutputsMax = 8;       // matrices that share an input

uint64_t widest_input(const StepShape& s) { return std::max({s.hidden, s.q_width, s.mlp_width}); }

// Hands out aligned pieces of a workspace; with no workspace it only counts.
class Carver {
 public:
  explicit Carver(std::byte* base) : base_(base) {}
  template <typename T>
  T* take(uint64_t count) {
    const uint64_t at = used_;
    used_ += round_up(count * sizeof(T), kTensorAlignment);
    return base_ == nullptr ? nullptr : reinterpret_cast<T*>(base_ + at);
  }
  uint64_t used() const { return used_; }

 private:
  std::byte* base_;
  uint64_t used_ = 0;
};

StepBuffers carve_buffers(const StepShape& s, uint64_t rows, uint64_t logit_rows, Carver& carver) {
  StepBuffers b{};
  b.x = carver.take<float>(rows * s.hidden);
  b.h = carver.take<float>(rows * s.hidden);
  b.y = carver.take<float>(rows * s.hidden);
  b.q = carver.take<float>(rows * s.q_width);
  b.k = carver.take<float>(rows * s.kv_width);
  b.v = carver.take<float>(rows * s.kv_width);
  b.attn = carver.take<float>(rows * s.q_width);
  b.gate = carver.take<float>(rows * s.mlp_width);
  b.up = carver.take<float>(rows * s.mlp_width);
  for (int which = 0; which < (s.local_rope ? 2 : 1); ++which) {
    b.cos[which] = carver.take<float>(rows * s.rope_half);
    b.sin[which] = carver.take<float>(rows * s.rope_half);
  }
  b.last = carver.take<float>(logit_rows * s.hidden);
  b.partial = carver.take<float>(s.partial_floats());
  if (s.quantized) b.quantized = carver.take<QuantBlock>(std::max(rows, logit_rows) * div_up(widest_input(s), kQuantBlock));
  return b;
}

}  // namespace

uint64_t StepShape::bytes(uint32_t rows, uint32_t logit_rows) const {
  Carver carver(nullptr);
  carve_buffers(*this, rows, logit_rows, carver);
  return carver.used() + kTensorAlignment;  // the workspace itself need not be aligned
}

Step::Step(const StepContext& context, const ForwardInput& input, std::span<std::byte> workspace, const UnpackedWeights* unpacked)
    : context_(context), input_(input), unpacked_(unpacked), rows_(static_cast<uint32_t>(input.tokens.size())) {
  for (uint32_t s = 0; s < input.slices.size(); ++s) {
    const SequenceSlice& slice = input.slices[s];
    CHECK_GE(slice.blocks.size() * kTokensPerBlock, uint64_t{slice.position} + slice.rows);
    slice_begin_.push_back(static_cast<uint32_t>(row_slice_.size()));
    row_slice_.insert(row_slice_.end(), slice.rows, s);
  }
  CHECK_EQ(row_slice_.size(), size_t{rows_});
  carve(workspace);
  plan_attention();
}

void Step::carve(std::span<std::byte> workspace) {
  const uint32_t logit_rows = static_cast<uint32_t>(input_.logit_rows.size());
  CHECK_GE(workspace.size(), context_.shape.bytes(rows_, logit_rows));
  const uint64_t misaligned = reinterpret_cast<uintptr_t>(workspace.data()) % kTensorAlignment;
  Carver carver(workspace.data() + (misaligned == 0 ? 0 : kTensorAlignment - misaligned));
  at_ = carve_buffers(context_.shape, rows_, logit_rows, carver);
}

LinearOutput Step::at_place(const MatrixPlace& matrix, float* out, bool add) const {
  return {matrix.at(context_.weights), out, add, unpacked_ == nullptr ? nullptr : unpacked_->maker(matrix)};
}

void Step::embed(const EmbeddingPlace& table, float* x) const {
  const uint64_t hidden = context_.shape.hidden;
  if (table.tied) return embed_tied(*table.tied, x);
  const std::byte* rows = unpacked_ == nullptr ? nullptr : unpacked_->stored(table);
  if (rows == nullptr) rows = context_.weights.matrices + table.offset;
  for_rows(context_.threads, rows_, hidden * 4, [&](uint32_t row) {
    const uint64_t token = static_cast<uint64_t>(input_.tokens[row]);
    dequantize_row(table.dtype, rows + token * table.row_bytes, 0, hidden, x + row * hidden);
  });
}

void Step::embed_tied(const MatrixPlace& table, float* x) const {
  const uint64_t hidden = context_.shape.hidden;
  const LinearOutput place = at_place(table, nullptr, false);
  for_rows(context_.threads, rows_, hidden * 4, [&](uint32_t row) {
    const auto token = static_cast<uint32_t>(input_.tokens[row]);
    if (place.maker == nullptr) return unpack_row(place.matrix, token, x + row * hidden);
    PackedMatrix panel = place.matrix;
    std::vector<std::byte> made(panel_bytes(panel.format, panel.columns));
    place.maker->make(token / kPanelRows, made.data());
    panel.rows = kPanelRows;
    panel.data = made.data();
    unpack_row(panel, token % kPanelRows, x + row * hidden);
  });
}

void Step::rope_table(const RopeFrequencies& frequencies, int which) const {
  const uint64_t half = context_.shape.rope_half;
  for_rows(context_.threads, rows_, half * 32, [&](uint32_t row) {
    const SequenceSlice& slice = input_.slices[row_slice_[row]];
    const uint32_t position = slice.position + row - slice_begin_[row_slice_[row]];
    frequencies.table(position, slice.rope_length, at_.cos[which] + row * half, at_.sin[which] + row * half);
  });
}

void Step::rms_norm(const float* x, const VectorPlace& weight, double eps, float* out, uint32_t groups) const {
  const uint64_t width = weight.size;
  for_rows(context_.threads, rows_, width * groups, [&](uint32_t row) {
    for (uint32_t g = 0; g < groups; ++g) {
      const uint64_t at = (uint64_t{row} * groups + g) * width;
      context_.kernels.rms_norm(x + at, weight.at(context_.weights), static_cast<float>(eps), width, out + at);
    }
  });
}

void Step::linear(const float* input, std::optional<LinearInput::MakeRow> make_row, std::initializer_list<Output> outputs) const {
  LinearOutput calls[kOutputsMax];
  size_t count = 0;
  CHECK_LE(outputs.size(), kOutputsMax);
  for (const Output& output : outputs) calls[count++] = at_place(*output.matrix, output.out, output.add);
  shoal::linear(context_.kernels, context_.threads, {input, rows_, at_.quantized, make_row}, {calls, count});
}

void Step::linear(const float* input, std::initializer_list<Output> outputs) const { linear(input, std::nullopt, outputs); }

void Step::linear(const Normed& input, std::initializer_list<Output> outputs) const {
  const auto make = [&](uint32_t row) { norm_row(input, row); };
  linear(input.out, LinearInput::MakeRow(make), outputs);
}

void Step::linear(const Gated& input, std::initializer_list<Output> outputs) const {
  const auto multiply = input.activation == Activation::kSilu ? context_.kernels.silu_mul : context_.kernels.gelu_mul;
  const uint64_t width = context_.shape.mlp_width;
  const auto make = [&](uint32_t row) {
    const uint64_t at = row * width;
    multiply(input.gate + at, input.up + at, width, input.out + at);
  };
  linear(input.out, LinearInput::MakeRow(make), outputs);
}

void Step::norm_row(const Normed& input, uint32_t row) const {
  const uint64_t width = input.weight.size, at = row * width;
  context_.kernels.rms_norm(input.x + at, input.weight.at(context_.weights), static_cast<float>(input.eps), width, input.out + at);
}

void Step::add_normed(const Normed& input, float* x) const {
  const uint64_t width = context_.shape.hidden;
  for_rows(context_.threads, rows_, width * 2, [&](uint32_t row) {
    norm_row(input, row);
    context_.kernels.add(x + row * width, input.out + row * width, width);
  });
}

void Step::rope(float* q, float* k, const RopeConfig& config, int which) const {
  const uint64_t half = context_.shape.rope_half;
  const uint32_t head_dim = context_.kv.head_dim;
  const auto turn = [&](float* x, uint32_t width, uint32_t row) {
    context_.kernels.rope({x + uint64_t{row} * width, width / head_dim, head_dim, config.dims / 2,
                           at_.cos[which] + row * half, at_.sin[which] + row * half, config.interleaved});
  };
  for_rows(context_.threads, rows_, context_.shape.q_width + context_.shape.kv_width, [&](uint32_t row) {
    turn(q, context_.shape.q_width, row);
    turn(k, context_.shape.kv_width, row);
  });
}

void Step::store_kv(const float* k, const float* v, uint32_t layer) const {
  const KvLayout& kv = context_.kv;
  const uint64_t width = context_.shape.kv_width;
  for_rows(context_.threads, rows_, width * 4, [&](uint32_t row) {
    const SequenceSlice& slice = input_.slices[row_slice_[row]];
    const uint32_t position = slice.position + row - slice_begin_[row_slice_[row]];
    std::byte* block = slice.blocks[position / kTokensPerBlock];
    context_.kernels.store_kv({k + row * width, v + row * width, block + kv.key_offset(layer), block + kv.value_offset(layer),
                               kv.head_bytes(), position % kTokensPerBlock, kv.heads, kv.head_dim, kv.format});
  });
}

void Step::scale(float* x, float factor) const {
  const uint64_t width = context_.shape.hidden;
  for_rows(context_.threads, rows_, width, [&](uint32_t row) { context_.kernels.scale(x + row * width, factor, width); });
}

void Step::logits(const float* x, const VectorPlace& norm, double eps, const MatrixPlace& head, float softcap,
                  float* out) const {
  const uint64_t hidden = context_.shape.hidden, vocab = head.matrix.rows;
  const uint32_t count = static_cast<uint32_t>(input_.logit_rows.size());
  if (count == 0) return;
  for_rows(context_.threads, count, hidden, [&](uint32_t i) {
    const uint32_t row = input_.logit_rows[i];
    CHECK_LT(row, rows_);
    context_.kernels.rms_norm(x + row * hidden, norm.at(context_.weights), static_cast<float>(eps), hidden, at_.last + i * hidden);
  });
  const LinearOutput output = at_place(head, out, false);
  shoal::linear(context_.kernels, context_.threads, {at_.last, count, at_.quantized}, {&output, 1});
  if (softcap > 0) for_rows(context_.threads, count, vocab * 4, [&](uint32_t i) { context_.kernels.softcap(out + i * vocab, softcap, vocab); });
}

}  // namespace shoal
