#include "models/cpu_step.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>

#include "base/check.h"
#include "kernels/pack.h"
#include "kernels/quant_codes.h"

namespace shoal {
namespace {

constexpr size_t kOutputsMax = 8;  // matrices that share an input
constexpr float kHalfRoot = 0.70710678f;  // sqrt(1/2)

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

// x [tokens, hidden] from a table that is the head's matrix.
void embed_tied(ThreadPool& threads, const CpuWeights& weights, const MatrixPlace& table, std::span<const TokenId> tokens, float* x) {
  const LinearOutput place = weights.output(table, nullptr, false);
  const uint64_t hidden = place.matrix.columns;
  for_rows(threads, static_cast<uint32_t>(tokens.size()), hidden * 4, [&](uint32_t row) {
    const auto token = static_cast<uint32_t>(tokens[row]);
    if (place.maker == nullptr) return unpack_row(place.matrix, token, x + row * hidden);
    PackedMatrix panel = place.matrix;
    std::vector<std::byte> made(panel_bytes(panel.format, panel.columns));
    place.maker->make(token / kPanelRows, made.data());
    panel.rows = kPanelRows;
    panel.data = made.data();
    unpack_row(panel, token % kPanelRows, x + row * hidden);
  });
}

}  // namespace

void norm_row(const Kernels& kernels, const CpuWeights& weights, const Step::Normed& input, uint32_t row) {
  const uint64_t width = input.weight.size, at = row * width;
  const auto norm = input.kind == NormKind::kLayer ? kernels.layer_norm : kernels.rms_norm;
  float* const out = CpuDevice::at(input.out) + at;
  norm(CpuDevice::at(input.x) + at, weights.vector(input.weight), static_cast<float>(input.eps), width, out);
  if (input.bias != nullptr) kernels.add(out, weights.vector(*input.bias), width);
}

LinearOutput CpuWeights::output(const MatrixPlace& place, float* out, bool add) const {
  PackedMatrix matrix = place.matrix;
  matrix.data = CpuDevice::at((place.expert ? context.weights.experts : context.weights.matrices) + place.offset);
  if (place.bias) matrix.bias = vector(*place.bias);
  return {matrix, out, add, unpacked == nullptr ? nullptr : unpacked->maker(place)};
}

const std::byte* CpuWeights::row(const EmbeddingPlace& table, TokenId token) const {
  const std::byte* rows = unpacked == nullptr ? nullptr : unpacked->stored(table);
  if (rows == nullptr) rows = CpuDevice::at(context.weights.matrices + table.offset);
  return rows + static_cast<uint64_t>(token) * table.row_bytes;
}

CpuStep::CpuStep(CpuCompute& compute, const StepContext& context, const ForwardInput& input, DeviceSpan workspace,
                 const UnpackedWeights* unpacked)
    : compute_(compute),
      context_(context),
      input_(input),
      weights_{context, unpacked},
      batch_(input),
      at_(carve_buffers(context.shape, batch_.size(), static_cast<uint32_t>(input.logits.size()), workspace)),
      top_(input.logits.size()) {
  for (const SequenceSlice& slice : input.slices) {
    first_block_.push_back(blocks_.size());
    for (const DeviceAddress block : slice.blocks) blocks_.push_back(CpuDevice::at(block));
    for (const DeviceAddress from : slice.tail_from) std::memcpy(blocks_[first_block_.back() + slice.position / kTokensPerBlock], CpuDevice::at(from), context.kv.block_bytes);
  }
  splits_ = split_attention(context, input, batch_, compute.threads.size());
  if (compute_.spare.empty()) return;
  logits_ = std::move(compute_.spare.back());
  compute_.spare.pop_back();
}

CpuStep::~CpuStep() { compute_.spare.push_back(std::move(logits_)); }

void CpuStep::embed(const EmbeddingPlace& table, Floats out) const {
  const uint64_t hidden = context_.shape.hidden;
  float* const x = CpuDevice::at(out);
  if (table.tied) return embed_tied(compute_.threads, weights_, *table.tied, input_.tokens, x);
  for_rows(compute_.threads, rows(), hidden * 4, [&](uint32_t row) {
    dequantize_row(table.dtype, weights_.row(table, input_.tokens[row]), 0, hidden, x + row * hidden);
  });
}

void CpuStep::rope_table(const RopeFrequencies& frequencies, int which) const {
  const uint64_t half = context_.shape.rope_half;
  float* const cos = CpuDevice::at(at_.cos[which]);
  float* const sin = CpuDevice::at(at_.sin[which]);
  for_rows(compute_.threads, rows(), half * 32, [&](uint32_t row) {
    const uint32_t length = input_.slices[batch_.slice(row)].rope_length;
    frequencies.table(batch_.position(row), length, cos + row * half, sin + row * half);
  });
}

void CpuStep::rms_norm(Floats from, const VectorPlace& weight, double eps, Floats to, uint32_t groups) const {
  norm_groups(compute_, CpuDevice::at(from), {weights_.vector(weight), weight.size}, eps, CpuDevice::at(to), rows(), groups);
}

void CpuStep::unit_norm(Floats from, uint32_t width, double eps, Floats to, uint32_t groups) const {
  norm_groups(compute_, CpuDevice::at(from), std::vector<float>(width, 1.0f), eps, CpuDevice::at(to), rows(), groups);
}

void CpuStep::multiply(const float* input, std::optional<LinearInput::MakeRow> make_row, Outputs outputs) const {
  LinearOutput calls[kOutputsMax];
  size_t count = 0;
  CHECK_LE(outputs.size(), kOutputsMax);
  for (const Output& o : outputs) calls[count++] = weights_.output(*o.matrix, CpuDevice::at(o.out), o.add);
  shoal::linear(compute_.kernels, compute_.threads, {input, rows(), CpuDevice::at(at_.quantized), make_row}, {calls, count});
}

void CpuStep::linear(Floats input, Outputs outputs) const { multiply(CpuDevice::at(input), std::nullopt, outputs); }

void CpuStep::linear(const Normed& input, Outputs outputs) const {
  const auto make = [&](uint32_t row) { norm_row(compute_.kernels, weights_, input, row); };
  multiply(CpuDevice::at(input.out), LinearInput::MakeRow(make), outputs);
}

void CpuStep::linear(const Gated& input, Outputs outputs) const {
  const uint64_t width = outputs.begin()->matrix->matrix.columns;
  const float* const gate = CpuDevice::at(input.gate);
  const float* const up = input.up ? CpuDevice::at(input.up) : nullptr;
  float* const out = CpuDevice::at(input.out);
  const auto make = [&](uint32_t row) {
    const uint64_t at = row * width;
    activate_row(compute_.kernels, input.activation, gate + at, up == nullptr ? nullptr : up + at, width, out + at);
  };
  multiply(out, LinearInput::MakeRow(make), outputs);
}

void CpuStep::normalize(const Normed& input) const {
  for_rows(compute_.threads, rows(), uint64_t{input.weight.size} * 2, [&](uint32_t row) { norm_row(compute_.kernels, weights_, input, row); });
}

void CpuStep::add_normed(const Normed& input, Floats to) const {
  const uint64_t width = context_.shape.hidden;
  float* const x = CpuDevice::at(to);
  const float* const normed = CpuDevice::at(input.out);
  for_rows(compute_.threads, rows(), width * 2, [&](uint32_t row) {
    norm_row(compute_.kernels, weights_, input, row);
    compute_.kernels.add(x + row * width, normed + row * width, width);
  });
}

void CpuStep::rope(uint32_t index, Floats q, Floats k, const RopeConfig& config, int which) const {
  const uint64_t half = context_.shape.rope_half;
  const KvLayer& layer = context_.kv.layers[index];
  const uint32_t head_dim = layer.key_dim;
  const float* const cos = CpuDevice::at(at_.cos[which]);
  const float* const sin = CpuDevice::at(at_.sin[which]);
  const auto turn = [&](Floats x, uint32_t width, uint32_t row) {
    compute_.kernels.rope({CpuDevice::at(x) + uint64_t{row} * width, width / head_dim, head_dim, config.dims / 2, cos + row * half,
                           sin + row * half, config.interleaved});
  };
  for_rows(compute_.threads, rows(), layer.query_width() + layer.key_width(), [&](uint32_t row) {
    turn(q, layer.query_width(), row);
    if (k) turn(k, layer.key_width(), row);
  });
}

void CpuStep::store_kv(const float* k, const float* v, const KvLayer& layer) const {
  const KvLayout& kv = context_.kv;
  for_rows(compute_.threads, rows(), layer.key_width() * 8, [&](uint32_t row) {
    const uint32_t position = batch_.position(row);
    std::byte* const block = blocks_[first_block_[batch_.slice(row)] + position / kTokensPerBlock];
    compute_.kernels.store_kv({k + row * uint64_t{layer.key_width()}, v == nullptr ? nullptr : v + row * uint64_t{layer.value_width()},
                               block + layer.offset, block + kv.value_offset(layer), kv.key_bytes(layer), kv.value_bytes(layer),
                               position % kTokensPerBlock, layer.heads, layer.key_dim, layer.value_dim, kv.format});
  });
}

// Rows move to the front one after the other: none is written over before it was moved.
void CpuStep::keep_asked(std::vector<KeptRows> buffers) const {
  const uint32_t before = rows();
  std::vector<uint32_t> asked;
  for (const LogitsQuery& query : input_.logits) asked.push_back(query.row);
  std::sort(asked.begin(), asked.end());
  asked.erase(std::unique(asked.begin(), asked.end()), asked.end());
  if (asked.size() == before) return;
  batch_.keep(asked);
  const auto keep = [&](auto buffer, uint64_t width, uint64_t layers) {
    auto* const at = CpuDevice::at(buffer);
    for (uint64_t layer = 0; layer < layers; ++layer) {
      for (uint64_t i = 0; i < asked.size(); ++i) {
        std::memmove(at + (layer * asked.size() + i) * width, at + (layer * before + asked[i]) * width, width * sizeof(*at));
      }
    }
  };
  for (const KeptRows& buffer : buffers) keep(buffer.base, buffer.width, 1);
  const StepShape& shape = context_.shape;
  for (int which = 0; which < (shape.local_rope ? 2 : 1); ++which) {
    keep(at_.cos[which], shape.rope_half, 1);
    keep(at_.sin[which], shape.rope_half, 1);
  }
  keep(at_.embedded, shape.embedded.width, shape.embedded.layers);
  if (shape.index_heads > 0) keep(at_.selected, selected_words(shape.context), 1);
  splits_ = split_attention(context_, input_, batch_, compute_.threads.size());
}

void CpuStep::scale(Floats to, const VectorPlace& factor) const { scale(to, *weights_.vector(factor), 0); }

void CpuStep::scale(Floats to, float factor, uint32_t stated) const {
  const uint64_t width = stated != 0 ? stated : context_.shape.hidden;
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

// One row after the other: the token's part is added where the projection's part lies.
void CpuStep::embed_layers(const LayerInputPlaces& places, Floats from) const {
  const uint64_t width = places.width, layers = places.layers;
  float* const out = CpuDevice::at(at_.embedded);
  float* const projected = CpuDevice::at(at_.projected);
  const LinearOutput product = weights_.output(places.projection, projected, false);
  shoal::linear(compute_.kernels, compute_.threads, {CpuDevice::at(from), rows(), CpuDevice::at(at_.quantized), std::nullopt}, {&product, 1});
  for_rows(compute_.threads, rows(), layers * width * 8, [&](uint32_t row) {
    std::vector<float> embedded(layers * width);
    dequantize_row(places.table.dtype, weights_.row(places.table, input_.tokens[row]), 0, layers * width, embedded.data());
    compute_.kernels.scale(embedded.data(), places.table_scale, layers * width);
    float* const own = projected + row * layers * width;
    compute_.kernels.scale(own, places.projection_scale, layers * width);
    for (uint64_t layer = 0; layer < layers; ++layer) {
      float* const at = out + (layer * rows() + row) * width;
      compute_.kernels.rms_norm(own + layer * width, weights_.vector(places.norm), static_cast<float>(places.eps), width, at);
      compute_.kernels.add(at, embedded.data() + layer * width, width);
      compute_.kernels.scale(at, kHalfRoot, width);
    }
  });
}

void CpuStep::grow_queries(uint32_t layer, Floats q, const QueryGrowth& growth) const {
  const uint64_t width = context_.kv.layers[layer].query_width();
  float* const x = CpuDevice::at(q);
  for_rows(compute_.threads, rows(), width, [&](uint32_t row) {
    const uint32_t position = batch_.position(row);
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
    norm(x + batch_.find(input_.logits[i].row) * hidden, weights_.vector(head.norm), static_cast<float>(head.eps), hidden, last + i * hidden);
  });
  logits_.resize(count * vocab);
  float* const out = logits_.data();
  const LinearOutput product = weights_.output(head.matrix, out, false);
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
