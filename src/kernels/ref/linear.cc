// Scalar linear: the definition of the order of the sums (kernels.h, LinearCall).
#include "kernels/ref/ref.h"

#include <cmath>
#include <cstring>

#include "tensor/half.h"

namespace shoal::ref {
namespace {

uint16_t load_u16(const std::byte* p) {
  uint16_t value;
  std::memcpy(&value, p, 2);
  return value;
}

float float_weight(WeightFormat format, const std::byte* panel, size_t k, size_t lane) {
  const size_t at = k * kPanelRows + lane;
  if (format == WeightFormat::kF16) return f32_from_f16(load_u16(panel + 2 * at));
  if (format == WeightFormat::kBF16) return f32_from_bf16(load_u16(panel + 2 * at));
  float value;
  std::memcpy(&value, panel + 4 * at, 4);
  return value;
}

// Code of column k (of 32) in the lines at p.
int code_at(WeightFormat format, const std::byte* p, size_t k, size_t lane) {
  if (format == WeightFormat::kQ8_0 || format == WeightFormat::kQ8_M) {
    return static_cast<int8_t>(p[k / 4 * 64 + lane * 4 + k % 4]);
  }
  const int byte = static_cast<int>(p[(k % 16) / 4 * 64 + lane * 4 + k % 4]);
  const int nibble = k < 16 ? byte & 0xf : byte >> 4;
  if (format == WeightFormat::kQ4_0) return nibble - 8;
  if (format == WeightFormat::kQ4_K) return nibble;
  const int high = static_cast<int>(p[256 + (k % 8) / 4 * 64 + lane * 4 + k % 4]) >> (2 * (k / 8));
  return (nibble | (high & 3) << 4) - 32;
}

struct Block {
  const std::byte* lines;
  float scale[2], min[2];
  bool halves, mins;  // a scale per 16 columns; a min
};

Block block_of(WeightFormat format, const std::byte* panel, size_t block, size_t lane) {
  const size_t per = format_columns(format) / 32;
  const std::byte* p = panel + block / per * panel_bytes(format, format_columns(format));
  const auto half_at = [&](size_t offset) { return f32_from_f16(load_u16(p + offset + 2 * lane)); };
  switch (format) {
    case WeightFormat::kQ8_0: return {p, {half_at(512), 0}, {0, 0}, false, false};
    case WeightFormat::kQ4_0: return {p, {half_at(256), 0}, {0, 0}, false, false};
    case WeightFormat::kQ8_M: return {p, {half_at(512), half_at(544)}, {half_at(576), half_at(608)}, true, true};
    case WeightFormat::kQ4_K: {
      const std::byte* sub = p + 64 + block % 8 * 288;
      return {sub + 32, {half_at(0) * static_cast<float>(sub[lane]), 0},
              {half_at(32) * static_cast<float>(sub[16 + lane]), 0}, false, true};
    }
    default: {
      const std::byte* sub = p + 32 + block % 8 * 416;
      const auto scale = [&](size_t half) { return half_at(0) * static_cast<float>(static_cast<int8_t>(sub[16 * half + lane])); };
      return {sub + 32, {scale(0), scale(1)}, {0, 0}, true, false};
    }
  }
}

float add_block(const LinearCall& call, const std::byte* panel, size_t lane, size_t block, const QuantBlock& x, float acc) {
  const WeightFormat format = call.weight.format;
  const Block b = block_of(format, panel, block, lane);
  for (size_t half = 0; half < (b.halves ? 2 : 1); ++half) {
    const size_t begin = 16 * half, end = b.halves ? begin + 16 : 32;
    int32_t dot = 0;
    for (size_t k = begin; k < end; ++k) dot += code_at(format, b.lines, k, lane) * x.q[k];
    acc = std::fma(static_cast<float>(dot), b.scale[half] * x.scale, acc);
    if (!b.mins) continue;
    const int32_t sum = b.halves ? x.sum[half] : x.sum[0] + x.sum[1];
    acc = std::fma(-(b.min[half] * x.scale), static_cast<float>(sum), acc);
  }
  return acc;
}

float chunk_sum(const LinearCall& call, const std::byte* panel, size_t lane, size_t m, size_t begin, size_t end) {
  float acc = 0;
  if (is_quantized(call.weight.format)) {
    const QuantBlock* x = call.quantized + m * quant_row_stride(call.weight.columns);
    for (size_t block = begin / 32; block < end / 32; ++block) acc = add_block(call, panel, lane, block, x[block], acc);
    return acc;
  }
  const float* x = call.x + m * call.x_stride;
  for (size_t k = begin; k < end; ++k) acc = std::fma(float_weight(call.weight.format, panel, k, lane), x[k], acc);
  return acc;
}

}  // namespace

void linear(const LinearCall& call, size_t panel_begin, size_t panel_end) {
  const PackedMatrix& w = call.weight;
  for (size_t row = panel_begin * kPanelRows; row < panel_end * kPanelRows && row < w.rows; ++row) {
    const std::byte* panel = w.data + row / kPanelRows * panel_bytes(w.format, w.columns);
    const size_t lane = row % kPanelRows;
    for (size_t m = 0; m < call.rows; ++m) {
      float sum;
      if (w.chunk_unit == 0) {
        sum = chunk_sum(call, panel, lane, m, 0, w.columns);
      } else {
        float c[kChunks];
        for (uint32_t chunk = 0; chunk < kChunks; ++chunk) {
          const auto [begin, end] = chunk_columns(w.columns, w.chunk_unit, chunk);
          c[chunk] = chunk_sum(call, panel, lane, m, begin, end);
        }
        sum = ((c[0] + c[1]) + (c[2] + c[3])) + ((c[4] + c[5]) + (c[6] + c[7]));
      }
      if (w.bias != nullptr) sum += w.bias[row];
      float& out = call.out[m * call.out_stride + row];
      out = call.add ? out + sum : sum;
    }
  }
}

}  // namespace shoal::ref
