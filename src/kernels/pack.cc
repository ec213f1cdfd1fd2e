#include "kernels/pack.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/check.h"
#include "kernels/cpu/backend.h"
#include "kernels/quant_codes.h"
#include "tensor/half.h"

namespace shoal {
namespace {

constexpr size_t kStretch = 256;  // columns converted at a time

void store_u16(std::byte* p, uint16_t value) { std::memcpy(p, &value, 2); }
uint16_t load_u16(const std::byte* p) {
  uint16_t value;
  std::memcpy(&value, p, 2);
  return value;
}

// Byte of column k (of 32) of panel row r within eight lines.
constexpr size_t line_byte(size_t row, size_t k) { return k / 4 * 64 + row * 4 + k % 4; }

void put_int8(std::byte* lines, size_t row, const int8_t* q) {
  for (size_t k = 0; k < 32; k += 4) std::memcpy(lines + line_byte(row, k), q + k, 4);
}

void put_nibbles(std::byte* lines, size_t row, const int8_t* q, int offset) {
  uint8_t bytes[16];
  for (size_t k = 0; k < 16; ++k) bytes[k] = static_cast<uint8_t>(((q[k] + offset) & 0xf) | ((q[k + 16] + offset) & 0xf) << 4);
  for (size_t k = 0; k < 16; k += 4) std::memcpy(lines + line_byte(row, k), bytes + k, 4);
}

void put_high_bits(std::byte* lines, size_t row, const int8_t* q) {  // bits 4..5 of q + 32
  uint8_t bytes[8] = {};
  for (size_t k = 0; k < 32; ++k) bytes[k % 8] = static_cast<uint8_t>(bytes[k % 8] | (((q[k] + 32) >> 4) & 3) << (2 * (k / 8)));
  for (size_t k = 0; k < 8; k += 4) std::memcpy(lines + line_byte(row, k), bytes + k, 4);
}

std::byte* block_at(WeightFormat format, std::byte* panel, size_t block) {
  const size_t per = format_columns(format) / 32;
  return panel + block / per * panel_bytes(format, format_columns(format));
}

// Puts block `block` (of 32 columns) of panel row `row`.
void put_codes(WeightFormat format, std::byte* panel, size_t block, size_t row, const QuantCodes& codes) {
  std::byte* p = block_at(format, panel, block);
  switch (format) {
    case WeightFormat::kQ8_0:
      put_int8(p, row, codes.q);
      store_u16(p + 512 + 2 * row, codes.sub_scale[0] == 1 ? codes.d : f16_from_f32(codes.scale[0]));
      break;
    case WeightFormat::kQ4_0:
      put_nibbles(p, row, codes.q, 8);
      store_u16(p + 256 + 2 * row, codes.d);
      break;
    case WeightFormat::kQ8_M:
      put_int8(p, row, codes.q);
      for (size_t half = 0; half < 2; ++half) {
        store_u16(p + 512 + 32 * half + 2 * row, f16_from_f32(codes.scale[half]));
        store_u16(p + 576 + 32 * half + 2 * row, f16_from_f32(codes.min[half]));
      }
      break;
    case WeightFormat::kQ4_K: {
      store_u16(p + 2 * row, codes.d);
      store_u16(p + 32 + 2 * row, codes.dmin);
      std::byte* sub = p + 64 + block % 8 * 288;
      sub[row] = static_cast<std::byte>(codes.sub_scale[0]);
      sub[16 + row] = static_cast<std::byte>(codes.sub_min[0]);
      put_nibbles(sub + 32, row, codes.q, 0);
      break;
    }
    default: {  // kQ6_K
      store_u16(p + 2 * row, codes.d);
      std::byte* sub = p + 32 + block % 8 * 416;
      sub[row] = static_cast<std::byte>(codes.sub_scale[0]);
      sub[16 + row] = static_cast<std::byte>(codes.sub_scale[1]);
      put_nibbles(sub + 32, row, codes.q, 32);
      put_high_bits(sub + 288, row, codes.q);
    }
  }
}

// Nearest integer, ties to even, of |x| < 2^22: adding 1.5 * 2^23 leaves the FPU no fraction bits.
float round_even(float x) { return (x + 12582912.0f) - 12582912.0f; }

void quantize_block(WeightFormat format, const float* x, QuantCodes& codes) {
  float extreme = 0;
  for (int i = 0; i < 32; ++i) {
    if (std::fabs(x[i]) > std::fabs(extreme)) extreme = x[i];
  }
  const bool eight_bits = format == WeightFormat::kQ8_0;
  codes.d = f16_from_f32(eight_bits ? std::fabs(extreme) / 127.0f : extreme / -8.0f);
  const float scale = f32_from_f16(codes.d);
  const float inverse = scale != 0 && std::isfinite(scale) ? 1.0f / scale : 0.0f;
  const float low = eight_bits ? -127.0f : -8.0f, high = eight_bits ? 127.0f : 7.0f;
  for (int i = 0; i < 32; ++i) {
    const float scaled = x[i] * inverse;
    codes.q[i] = static_cast<int8_t>(round_even(scaled >= low ? std::min(scaled, high) : low));  // NaN becomes `low`
  }
  codes.sub_scale[0] = codes.sub_scale[1] = 1;
  codes.scale[0] = codes.scale[1] = scale;
  codes.min[0] = codes.min[1] = 0;
}

// f32 values of columns [begin, end) of source row `row`.
void read_values(const PanelSource& source, size_t row, size_t begin, size_t end, float* out) {
  dequantize_row(source.dtype, source.rows[row], begin, end, out);
  if (source.row_scales.empty()) return;
  for (size_t k = begin; k < end; ++k) out[k - begin] *= source.row_scales[row][k / source.scale_block];
}

void pack_floats(const PanelSource& source, WeightFormat format, std::byte* panel) {
  float values[kStretch];
  for (size_t begin = 0; begin < source.columns; begin += kStretch) {
    const size_t end = std::min(source.columns, begin + kStretch);
    for (size_t row = 0; row < source.rows.size(); ++row) {
      read_values(source, row, begin, end, values);
      for (size_t k = begin; k < end; ++k) {
        const float value = values[k - begin];
        const size_t at = k * kPanelRows + row;
        if (format == WeightFormat::kF32) std::memcpy(panel + 4 * at, &value, 4);
        if (format == WeightFormat::kF16) store_u16(panel + 2 * at, f16_from_f32(value));
        if (format == WeightFormat::kBF16) store_u16(panel + 2 * at, bf16_from_f32(value));
      }
    }
  }
}

void pack_quantized(const PanelSource& source, WeightFormat format, std::byte* panel) {
  QuantCodes codes;
  float values[32];
  for (size_t block = 0; block < source.columns / 32; ++block) {
    for (size_t row = 0; row < source.rows.size(); ++row) {
      if (is_block_type(source.dtype)) {
        read_codes(source.dtype, source.rows[row], block, codes);
      } else {
        read_values(source, row, 32 * block, 32 * block + 32, values);
        quantize_block(format, values, codes);
      }
      put_codes(format, panel, block, row, codes);
    }
  }
}

int get_code(WeightFormat format, const std::byte* lines, size_t row, size_t k) {
  if (format == WeightFormat::kQ8_0 || format == WeightFormat::kQ8_M) {
    return static_cast<int8_t>(lines[line_byte(row, k)]);
  }
  const int byte = static_cast<int>(lines[line_byte(row, k % 16)]);
  const int nibble = k < 16 ? byte & 0xf : byte >> 4;
  if (format == WeightFormat::kQ4_0) return nibble - 8;
  if (format == WeightFormat::kQ4_K) return nibble;
  const int high = (static_cast<int>(lines[256 + line_byte(row, k % 8)]) >> (2 * (k / 8))) & 3;
  return (nibble | high << 4) - 32;
}

// Scale and min of 16 columns (half 0 or 1) of a block, as the kernels compute them.
void get_scales(WeightFormat format, const std::byte* p, size_t sub, size_t half, size_t row, float* scale, float* min) {
  *min = 0;
  switch (format) {
    case WeightFormat::kQ8_0: *scale = f32_from_f16(load_u16(p + 512 + 2 * row)); break;
    case WeightFormat::kQ4_0: *scale = f32_from_f16(load_u16(p + 256 + 2 * row)); break;
    case WeightFormat::kQ8_M:
      *scale = f32_from_f16(load_u16(p + 512 + 32 * half + 2 * row));
      *min = f32_from_f16(load_u16(p + 576 + 32 * half + 2 * row));
      break;
    case WeightFormat::kQ4_K:
      *scale = f32_from_f16(load_u16(p + 2 * row)) * static_cast<float>(p[64 + sub * 288 + row]);
      *min = f32_from_f16(load_u16(p + 32 + 2 * row)) * static_cast<float>(p[64 + sub * 288 + 16 + row]);
      break;
    default:
      *scale = f32_from_f16(load_u16(p + 2 * row)) * static_cast<float>(static_cast<int8_t>(p[32 + sub * 416 + 16 * half + row]));
  }
}

const std::byte* lines_of(WeightFormat format, const std::byte* p, size_t sub) {
  if (format == WeightFormat::kQ4_K) return p + 64 + sub * 288 + 32;
  if (format == WeightFormat::kQ6_K) return p + 32 + sub * 416 + 32;
  return p;
}

}  // namespace

WeightFormat natural_format(DType type) {
  switch (type) {
    case DType::kF32: return WeightFormat::kF32;
    case DType::kF16: return WeightFormat::kF16;
    case DType::kQ8_0: case DType::kQ5_0: case DType::kIQ4_NL: case DType::kIQ4_XS: case DType::kMXFP4: return WeightFormat::kQ8_0;
    case DType::kQ4_0: return WeightFormat::kQ4_0;
    case DType::kQ4_1: case DType::kQ5_1: case DType::kQ5_K: case DType::kQ2_K: return WeightFormat::kQ8_M;
    case DType::kQ4_K: return WeightFormat::kQ4_K;
    case DType::kQ6_K: case DType::kQ3_K: return WeightFormat::kQ6_K;
    default: return WeightFormat::kBF16;
  }
}

bool can_pack(DType from, WeightFormat to) {
  if (!is_weight_type(from)) return false;
  if (to == natural_format(from)) return true;
  return !is_block_type(from) && to <= WeightFormat::kQ4_0;
}

void pack_panel(const PanelSource& source, WeightFormat format, std::byte* panel) {
  CHECK(can_pack(source.dtype, format));
  CHECK_LE(source.rows.size(), kPanelRows);
  const PackFunction packer = chosen_panel_packer();
  if (packer != nullptr && packer(source, format, panel)) return;
  if (source.rows.size() < kPanelRows) std::memset(panel, 0, panel_bytes(format, source.columns));
  if (is_quantized(format)) return pack_quantized(source, format, panel);
  pack_floats(source, format, panel);
}

void unpack_row(const PackedMatrix& matrix, size_t row, float* out) {
  CHECK_LT(row, matrix.rows);
  const std::byte* panel = matrix.data + row / kPanelRows * panel_bytes(matrix.format, matrix.columns);
  const size_t lane = row % kPanelRows;
  if (!is_quantized(matrix.format)) {
    const DType type = matrix.format == WeightFormat::kF32   ? DType::kF32
                       : matrix.format == WeightFormat::kF16 ? DType::kF16
                                                             : DType::kBF16;
    const size_t bytes = matrix.format == WeightFormat::kF32 ? 4 : 2;
    for (size_t k = 0; k < matrix.columns; ++k) dequantize_row(type, panel + bytes * (k * kPanelRows + lane), 0, 1, out + k);
    return;
  }
  const size_t per = format_columns(matrix.format) / 32;
  for (size_t block = 0; block < matrix.columns / 32; ++block) {
    const std::byte* p = block_at(matrix.format, const_cast<std::byte*>(panel), block);
    const std::byte* lines = lines_of(matrix.format, p, block % per);
    for (size_t half = 0; half < 2; ++half) {
      float scale, min;
      get_scales(matrix.format, p, block % per, half, lane, &scale, &min);
      for (size_t k = 16 * half; k < 16 * half + 16; ++k) {
        *out++ = scale * static_cast<float>(get_code(matrix.format, lines, lane, k)) - min;
      }
    }
  }
}

}  // namespace shoal
