#include "models/cpu_step.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "base/check.h"
#include "kernels/pack.h"
#include "kernels/quant_codes.h"

namespace shoal {
namespace {

constexpr size_t kOutputsMax = 8;  // matrices that share an input

bool more_likely(const TokenLogit& a, const TokenLogit& b) { return a.logit != b.logit ? a.logit > b.logit : a.token < b.token; }

// The `count` largest, in order. A heap of those found so far, the least of them on top.
void find_top(std::span<const float> logits, size_t count, std::vector<TokenLogit>& top) {
  for (size_t i = 0; i < logits.size(); ++i) {
    const TokenLogit candidate{static_cast<TokenId>(i), logits[i]};
    if (top.size() == count) {
      if (!more_likely(candidate, top.front())) continue;
      std::pop_heap(top.begin(), top.end(), more_likely);
      top.pop_back();
    }
    top.push_back(candidate);
    std::push_heap(top.begin(), top.end(), more_likely);
  }
  std::sort_heap(top.begin(), top.end(), more_likely);
}

void norm_groups(const CpuCompute& compute, const float* x, std::span<const float> weight, double eps, float* out, uint32_t rows, uint32_t groups) {
  const uint64_t width = weight.size();
  for_rows(compute.threads, rows, width * groups, [&](uint32_t row) {
    for (uint32_t g = 0; g < groups; ++g) {
      const uint64_t at = (uint64_t{row} * groups + g) * width;
      compute.kernels.rms_norm(x + at, weight.data(), static_cast<float>(eps), width, out + at);
    }
  });
}

}  // namespace

CpuStep::CpuStep(CpuCompute& compute, const StepContext& context, const ForwardInput& input, DeviceSpan workspace,
                 const UnpackedWeights* unpacked)
    : compute_(compute),
      context_(context),
      input_(input),
      unpacked_(unpacked),
      batch_(input),
      at_(carve_buffers(context.shape, batch_.size(), static_cast<uint32_t>(input.logits.size()), workspace)),
      top_(input.logits.size()) {
  for (const SequenceSlice& slice : input.slices) {
    first_block_.push_back(blocks_.size());
    for (const DeviceAddress block : slice.blocks) blocks_.push_back(CpuDevice::at(block));
  }
  plan_attention();
  if (compute_.spare.empty()) return;
  logits_ = std::move(compute_.spare.back());
  compute_.spare.pop_back();
}

CpuStep::~CpuStep() { compute_.spare.push_back(std::move(logits_)); }

PackedMatrix CpuStep::packed(const MatrixPlace& place) const {
  PackedMatrix result = place.matrix;
  result.data = CpuDevice::at((place.expert ? context_.weights.experts : context_.weights.matrices) + place.offset);
  if (place.bias) result.bias = vector(*place.bias);
  return result;
}

LinearOutput CpuStep::output(const MatrixPlace& matrix, float* out, bool add) const {
  return {packed(matrix), out, add, unpacked_ == nullptr ? nullptr : unpacked_->maker(matrix)};
}

void CpuStep::embed(const EmbeddingPlace& table, Floats out) const {
  const uint64_t hidden = context_.shape.hidden;
  float* const x = CpuDevice::at(out);
  if (table.tied) return embed_tied(*table.tied, x);
  const std::byte* rows = unpacked_ == nullptr ? nullptr : unpacked_->stored(table);
  if (rows == nullptr) rows = CpuDevice::at(context_.weights.matrices + table.offset);
  for_rows(compute_.threads, this->rows(), hidden * 4, [&](uint32_t row) {
    const uint64_t token = static_cast<uint64_t>(input_.tokens[row]);
    dequantize_row(table.dtype, rows + token * table.row_bytes, 0, hidden, x + row * hidden);
  });
}

void CpuStep::embed_tied(const MatrixPlace& table, float* x) const {
  const uint64_t hidden = context_.shape.hidden;
  const LinearOutput place = output(table, nullptr, false);
  for_rows(compute_.threads, rows(), hidden * 4, [&](uint32_t row) {
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

void CpuStep::rope_table(const RopeFrequencies& frequencies, int which) const {
  const uint64_t half = context_.shape.rope_half;
  float* const cos = CpuDevice::at(at_.cos[which]);
  float* const sin = CpuDevice::at(at_.sin[which]);
  for_rows(compute_.threads, rows(), half * 32, [&](uint32_t row) {
    const uint32_t length = input_.slices[batch_.slice(row)].rope_length;
    frequencies.table(batch_.position(input_, row), length, cos + row * half, sin + row * half);
  });
}

void CpuStep::rms_norm(Floats from, const VectorPlace& weight, double eps, Floats to, uint32_t groups) const {
  norm_groups(compute_, CpuDevice::at(from), {vector(weight), weight.size}, eps, CpuDevice::at(to), rows(), groups);
}

void CpuStep::unit_norm(Floats from, uint32_t width, double eps, Floats to, uint32_t groups) const {
  norm_groups(compute_, CpuDevice::at(from), std::vector<float>(width, 1.0f), eps, CpuDevice::at(to), rows(), groups);
}

void CpuStep::multiply(const float* input, std::optional<LinearInput::MakeRow> make_row, Outputs outputs) const {
  LinearOutput calls[kOutputsMax];
  size_t count = 0;
  CHECK_LE(outputs.size(), kOutputsMax);
  for (const Output& o : outputs) calls[count++] = output(*o.matrix, CpuDevice::at(o.out), o.add);
  shoal::linear(compute_.kernels, compute_.threads, {input, rows(), CpuDevice::at(at_.quantized), make_row}, {calls, count});
}

void CpuStep::linear(Floats input, Outputs outputs) const { multiply(CpuDevice::at(input), std::nullopt, outputs); }

void CpuStep::linear(const Normed& input, Outputs outputs) const {
  const auto make = [&](uint32_t row) { norm_row(input, row); };
  multiply(CpuDevice::at(input.out), LinearInput::MakeRow(make), outputs);
}

void CpuStep::linear(const Gated& input, Outputs outputs) const {
  const auto activate = input.activation == Activation::kSilu ? compute_.kernels.silu_mul
                        : input.activation == Activation::kGelu ? compute_.kernels.gelu_mul
                                                                : compute_.kernels.gelu_erf_mul;
  const uint64_t width = outputs.begin()->matrix->matrix.columns;
  const float* const gate = CpuDevice::at(input.gate);
  const float* const up = input.up ? CpuDevice::at(input.up) : nullptr;
  float* const out = CpuDevice::at(input.out);
  const auto make = [&](uint32_t row) {
    const uint64_t at = row * width;
    activate(gate + at, up == nullptr ? nullptr : up + at, width, out + at);
  };
  multiply(out, LinearInput::MakeRow(make), outputs);
}

void CpuStep::norm_row(const Normed& input, uint32_t row) const {
  const uint64_t width = input.weight.size, at = row * width;
  const auto norm = input.kind == NormKind::kLayer ? compute_.kernels.layer_norm : compute_.kernels.rms_norm;
  float* const out = CpuDevice::at(input.out) + at;
  norm(CpuDevice::at(input.x) + at, vector(input.weight), static_cast<float>(input.eps), width, out);
  if (input.bias != nullptr) compute_.kernels.add(out, vector(*input.bias), width);
}

void CpuStep::normalize(const Normed& input) const {
  for_rows(compute_.threads, rows(), uint64_t{input.weight.size} * 2, [&](uint32_t row) { norm_row(input, row); });
}

void CpuStep::add_normed(const Normed& input, Floats to) const {
  const uint64_t width = context_.shape.hidden;
  float* const x = CpuDevice::at(to);
  const float* const normed = CpuDevice::at(input.out);
  for_rows(compute_.threads, rows(), width * 2, [&](uint32_t row) {
    norm_row(input, row);
    compute_.kernels.add(x + row * width, normed + row * width, width);
  });
}

void CpuStep::rope(Floats q, Floats k, const RopeConfig& config, int which) const {
  const uint64_t half = context_.shape.rope_half;
  const uint32_t head_dim = context_.kv.head_dim;
  const float* const cos = CpuDevice::at(at_.cos[which]);
  const float* const sin = CpuDevice::at(at_.sin[which]);
  const auto turn = [&](Floats x, uint32_t width, uint32_t row) {
    compute_.kernels.rope({CpuDevice::at(x) + uint64_t{row} * width, width / head_dim, head_dim, config.dims / 2, cos + row * half,
                           sin + row * half, config.interleaved});
  };
  for_rows(compute_.threads, rows(), context_.shape.q_width + context_.shape.kv_width, [&](uint32_t row) {
    turn(q, context_.shape.q_width, row);
    turn(k, context_.shape.kv_width, row);
  });
}

void CpuStep::store_kv(const float* k, const float* v, uint32_t layer) const {
  const KvLayout& kv = context_.kv;
  const uint64_t width = context_.shape.kv_width;
  for_rows(compute_.threads, rows(), width * 4, [&](uint32_t row) {
    const uint32_t position = batch_.position(input_, row);
    std::byte* const block = blocks_[first_block_[batch_.slice(row)] + position / kTokensPerBlock];
    compute_.kernels.store_kv({k + row * width, v == nullptr ? nullptr : v + row * width, block + kv.key_offset(layer), block + kv.value_offset(layer),
                               kv.head_bytes(), position % kTokensPerBlock, kv.heads, kv.head_dim, kv.format});
  });
}

void CpuStep::scale(Floats to, float factor) const {
  const uint64_t width = context_.shape.hidden;
  float* const x = CpuDevice::at(to);
  if (factor == 0) return void(std::fill_n(x, rows() * width, 0.0f));
  for_rows(compute_.threads, rows(), width, [&](uint32_t row) { compute_.kernels.scale(x + row * width, factor, width); });
}

void CpuStep::add_scaled(Floats from, float factor, Floats to) const {
  const uint64_t width = context_.shape.hidden;
  float* const x = CpuDevice::at(to);
  const float* const y = CpuDevice::at(from);
  for_rows(compute_.threads, rows(), width, [&](uint32_t row) { compute_.kernels.add_scaled(x + row * width, factor, y + row * width, width); });
}

void CpuStep::grow_queries(Floats q, const QueryGrowth& growth) const {
  const uint64_t width = context_.shape.q_width;
  float* const x = CpuDevice::at(q);
  for_rows(compute_.threads, rows(), width, [&](uint32_t row) {
    const uint32_t position = batch_.position(input_, row);
    if (position + growth.ahead >= growth.tokens) compute_.kernels.scale(x + row * width, query_growth_at(growth, position), width);
  });
}

void CpuStep::logits(Floats from, const Head& head) {
  const uint64_t hidden = context_.shape.hidden, vocab = head.matrix.matrix.rows;
  const auto count = static_cast<uint32_t>(input_.logits.size());
  if (count == 0) return;
  const float* const x = CpuDevice::at(from);
  float* const last = CpuDevice::at(at_.last);
  const auto norm = head.kind == NormKind::kLayer ? compute_.kernels.layer_norm : compute_.kernels.rms_norm;
  for_rows(compute_.threads, count, hidden, [&](uint32_t i) {
    norm(x + input_.logits[i].row * hidden, vector(head.norm), static_cast<float>(head.eps), hidden, last + i * hidden);
  });
  logits_.resize(count * vocab);
  float* const out = logits_.data();
  const LinearOutput product = output(head.matrix, out, false);
  shoal::linear(compute_.kernels, compute_.threads, {last, count, CpuDevice::at(at_.quantized), std::nullopt}, {&product, 1});
  if (head.scale == 1 && head.softcap == 0) return;
  for_rows(compute_.threads, count, vocab * 4, [&](uint32_t i) {
    if (head.scale != 1) compute_.kernels.scale(out + i * vocab, head.scale, vocab);
    if (head.softcap > 0) compute_.kernels.softcap(out + i * vocab, head.softcap, vocab);
  });
}

RowLogits CpuStep::logits_of(size_t i) {
  const size_t vocab = logits_.size() / input_.logits.size();
  const LogitsQuery& query = input_.logits[i];
  const std::span<const float> all(logits_.data() + i * vocab, vocab);
  if (query.wanted == LogitsWanted::kAll || query.wanted == LogitsWanted::kPooled) return {.all = all};
  float largest = -std::numeric_limits<float>::infinity();
  for (const float logit : all) {
    if (std::isnan(logit)) return {.sound = false};
    largest = std::max(largest, logit);
  }
  if (!std::isfinite(largest)) return {.sound = false};
  if (query.wanted == LogitsWanted::kBest) return {.best = static_cast<TokenId>(std::find(all.begin(), all.end(), largest) - all.begin())};
  if (top_[i].empty()) find_top(all, std::min<size_t>(query.top, vocab), top_[i]);
  return {.top = top_[i]};
}

}  // namespace shoal
