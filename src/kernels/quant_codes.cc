#include "kernels/quant_codes.h"

#include <cmath>
#include <cstring>
#include <limits>

#include "base/check.h"
#include "tensor/half.h"

namespace shoal {
namespace {

// Non-linear 4-bit codes of IQ4_NL and IQ4_XS (ggml-common, kvalues_iq4nl).
constexpr int8_t kIq4Values[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};

// E2M1 (OCP Microscaling Formats 1.0, section 5.3.3), doubled.
constexpr int8_t kE2M1Doubled[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

uint16_t load_u16(const uint8_t* p) { return static_cast<uint16_t>(p[0] | p[1] << 8); }
uint32_t load_u32(const uint8_t* p) { return load_u16(p) | static_cast<uint32_t>(load_u16(p + 2)) << 16; }

void set_plain_scale(QuantCodes& codes, uint16_t d, float min) {
  codes.d = d;
  codes.dmin = 0;
  codes.scale[0] = codes.scale[1] = f32_from_f16(d);
  codes.min[0] = codes.min[1] = min;
  for (int half = 0; half < 2; ++half) codes.sub_scale[half] = 1, codes.sub_min[half] = 0;
}

void set_sub_scales(QuantCodes& codes, uint16_t d, uint16_t dmin, int scale0, int scale1, int min0, int min1) {
  codes.d = d;
  codes.dmin = dmin;
  codes.sub_scale[0] = static_cast<int8_t>(scale0);
  codes.sub_scale[1] = static_cast<int8_t>(scale1);
  codes.sub_min[0] = static_cast<uint8_t>(min0);
  codes.sub_min[1] = static_cast<uint8_t>(min1);
  for (int half = 0; half < 2; ++half) {
    codes.scale[half] = f32_from_f16(d) * static_cast<float>(codes.sub_scale[half]);
    codes.min[half] = f32_from_f16(dmin) * static_cast<float>(codes.sub_min[half]);
  }
}

// 16 bytes: element i in the low nibble of byte i, element i + 16 in the high one.
void read_nibbles(const uint8_t* p, int8_t* q) {
  for (int i = 0; i < 16; ++i) {
    q[i] = static_cast<int8_t>(p[i] & 0xf);
    q[i + 16] = static_cast<int8_t>(p[i] >> 4);
  }
}

void read_fifth_bits(const uint8_t* p, int8_t* q) {
  const uint32_t bits = load_u32(p);
  for (int i = 0; i < 32; ++i) q[i] = static_cast<int8_t>(q[i] | ((bits >> i) & 1) << 4);
}

void shift_codes(int8_t* q, int offset) {
  for (int i = 0; i < 32; ++i) q[i] = static_cast<int8_t>(q[i] - offset);
}

void read_q2_k(const uint8_t* p, int sub, QuantCodes& codes) {  // scales[16], qs[64], d, dmin
  const uint8_t* qs = p + 16 + 32 * (sub / 4);
  for (int i = 0; i < 32; ++i) codes.q[i] = static_cast<int8_t>((qs[i] >> (2 * (sub % 4))) & 3);
  const uint8_t s0 = p[2 * sub], s1 = p[2 * sub + 1];
  set_sub_scales(codes, load_u16(p + 80), load_u16(p + 82), s0 & 0xf, s1 & 0xf, s0 >> 4, s1 >> 4);
}

int q3_k_scale(const uint8_t* scales, int i) {  // 16 six-bit scales in 12 bytes
  const int low = i < 8 ? scales[i] & 0xf : scales[i - 8] >> 4;
  return (low | ((scales[8 + i % 4] >> (2 * (i / 4))) & 3) << 4) - 32;
}

void read_q3_k(const uint8_t* p, int sub, QuantCodes& codes) {  // hmask[32], qs[64], scales[12], d
  const uint8_t* qs = p + 32 + 32 * (sub / 4);
  for (int i = 0; i < 32; ++i) {
    const int high = (p[i] >> sub) & 1;
    codes.q[i] = static_cast<int8_t>(((qs[i] >> (2 * (sub % 4))) & 3) - (high != 0 ? 0 : 4));
  }
  set_sub_scales(codes, load_u16(p + 108), 0, q3_k_scale(p + 96, 2 * sub), q3_k_scale(p + 96, 2 * sub + 1), 0, 0);
}

// Eight six-bit scales and mins in 12 bytes, shared by Q4_K and Q5_K.
void set_k4_scales(const uint8_t* p, const uint8_t* scales, int sub, QuantCodes& codes) {
  int scale, min;
  if (sub < 4) {
    scale = scales[sub] & 63;
    min = scales[sub + 4] & 63;
  } else {
    scale = (scales[sub + 4] & 0xf) | (scales[sub - 4] >> 6) << 4;
    min = (scales[sub + 4] >> 4) | (scales[sub] >> 6) << 4;
  }
  set_sub_scales(codes, load_u16(p), load_u16(p + 2), scale, scale, min, min);
}

void read_k_nibbles(const uint8_t* qs, int sub, int8_t* q) {
  for (int i = 0; i < 32; ++i) q[i] = static_cast<int8_t>((qs[32 * (sub / 2) + i] >> (4 * (sub % 2))) & 0xf);
}

void read_q4_k(const uint8_t* p, int sub, QuantCodes& codes) {  // d, dmin, scales[12], qs[128]
  read_k_nibbles(p + 16, sub, codes.q);
  set_k4_scales(p, p + 4, sub, codes);
}

void read_q5_k(const uint8_t* p, int sub, QuantCodes& codes) {  // d, dmin, scales[12], qh[32], qs[128]
  read_k_nibbles(p + 48, sub, codes.q);
  for (int i = 0; i < 32; ++i) codes.q[i] = static_cast<int8_t>(codes.q[i] | ((p[16 + i] >> sub) & 1) << 4);
  set_k4_scales(p, p + 4, sub, codes);
}

void read_q6_k(const uint8_t* p, int sub, QuantCodes& codes) {  // ql[128], qh[64], scales[16], d
  const int half = sub / 4, quarter = sub % 4;
  const uint8_t* ql = p + 64 * half + 32 * (quarter % 2);
  const uint8_t* qh = p + 128 + 32 * half;
  for (int i = 0; i < 32; ++i) {
    const int low = (ql[i] >> (4 * (quarter / 2))) & 0xf;
    codes.q[i] = static_cast<int8_t>((low | ((qh[i] >> (2 * quarter)) & 3) << 4) - 32);
  }
  const auto* scales = reinterpret_cast<const int8_t*>(p + 192);
  set_sub_scales(codes, load_u16(p + 208), 0, scales[2 * sub], scales[2 * sub + 1], 0, 0);
}

void read_iq4_xs(const uint8_t* p, int sub, QuantCodes& codes) {  // d, scales_h (u16), scales_l[4], qs[128]
  read_nibbles(p + 8 + 16 * sub, codes.q);
  for (int8_t& q : codes.q) q = kIq4Values[q];
  const int low = (p[4 + sub / 2] >> (4 * (sub % 2))) & 0xf;
  const int scale = (low | ((load_u16(p + 2) >> (2 * sub)) & 3) << 4) - 32;
  set_sub_scales(codes, load_u16(p), 0, scale, scale, 0, 0);
}

// A scale of powers of two, e[1], qs[16]; half of it belongs to the doubled codes.
void read_mxfp4(const uint8_t* p, QuantCodes& codes) {
  read_nibbles(p + 1, codes.q);
  for (int8_t& q : codes.q) q = kE2M1Doubled[q];
  const float scale = p[0] == 255 ? std::numeric_limits<float>::quiet_NaN() : std::ldexp(1.0f, int{p[0]} - 128);
  set_plain_scale(codes, f16_from_f32(scale), 0);
  codes.scale[0] = codes.scale[1] = scale;
}

void read_legacy(DType type, const uint8_t* p, QuantCodes& codes) {
  const uint16_t d = load_u16(p);
  switch (type) {
    case DType::kQ4_0: read_nibbles(p + 2, codes.q); shift_codes(codes.q, 8); set_plain_scale(codes, d, 0); break;
    case DType::kQ4_1: read_nibbles(p + 4, codes.q); set_plain_scale(codes, d, -f32_from_f16(load_u16(p + 2))); break;
    case DType::kQ5_0:
      read_nibbles(p + 6, codes.q);
      read_fifth_bits(p + 2, codes.q);
      shift_codes(codes.q, 16);
      set_plain_scale(codes, d, 0);
      break;
    case DType::kQ5_1:
      read_nibbles(p + 8, codes.q);
      read_fifth_bits(p + 4, codes.q);
      set_plain_scale(codes, d, -f32_from_f16(load_u16(p + 2)));
      break;
    case DType::kQ8_0: std::memcpy(codes.q, p + 2, 32); set_plain_scale(codes, d, 0); break;
    default:  // kIQ4_NL
      read_nibbles(p + 2, codes.q);
      for (int8_t& q : codes.q) q = kIq4Values[q];
      set_plain_scale(codes, d, 0);
  }
}

template <typename Stored, typename Convert>
void convert_row(const std::byte* row, size_t begin, size_t end, float* out, const Convert& convert) {
  for (size_t i = begin; i < end; ++i) {
    Stored stored;
    std::memcpy(&stored, row + sizeof(Stored) * i, sizeof(Stored));
    *out++ = convert(stored);
  }
}

void dequantize_floats(DType type, const std::byte* row, size_t begin, size_t end, float* out) {
  switch (type) {
    case DType::kF32: return convert_row<float>(row, begin, end, out, [](float x) { return x; });
    case DType::kF16: return convert_row<uint16_t>(row, begin, end, out, f32_from_f16);
    case DType::kBF16: return convert_row<uint16_t>(row, begin, end, out, f32_from_bf16);
    case DType::kF8E4M3: return convert_row<uint8_t>(row, begin, end, out, f32_from_f8e4m3);
    default: return convert_row<uint8_t>(row, begin, end, out, f32_from_f8e5m2);
  }
}

}  // namespace

void read_codes(DType type, const std::byte* row, size_t block, QuantCodes& codes) {
  const DTypeInfo& info = dtype_info(type);
  const size_t per_block = info.block_elements / 32;
  CHECK_GE(per_block, 1u);
  const auto* p = reinterpret_cast<const uint8_t*>(row) + block / per_block * info.block_bytes;
  const int sub = static_cast<int>(block % per_block);
  switch (type) {
    case DType::kQ2_K: return read_q2_k(p, sub, codes);
    case DType::kQ3_K: return read_q3_k(p, sub, codes);
    case DType::kQ4_K: return read_q4_k(p, sub, codes);
    case DType::kQ5_K: return read_q5_k(p, sub, codes);
    case DType::kQ6_K: return read_q6_k(p, sub, codes);
    case DType::kIQ4_XS: return read_iq4_xs(p, sub, codes);
    case DType::kMXFP4: return read_mxfp4(p, codes);
    default: return read_legacy(type, p, codes);
  }
}

void join_mxfp4(const std::byte* blocks, const std::byte* scales, size_t columns, std::byte* row) {
  for (size_t block = 0; block < columns / 32; ++block, blocks += 16, row += 17) {
    row[0] = scales[block];
    for (size_t i = 0; i < 16; ++i) {  // elements 2j and 2j + 1 stand in byte j, and are to stand in bytes i and i - 16
      const auto nibble = [&](size_t element) { return element % 2 == 0 ? blocks[element / 2] & std::byte{0xf} : blocks[element / 2] >> 4; };
      row[1 + i] = nibble(i) | nibble(i + 16) << 4;
    }
  }
}

bool is_weight_type(DType type) {
  return is_block_type(type) || type == DType::kF32 || type == DType::kF16 || type == DType::kBF16 ||
         type == DType::kF8E4M3 || type == DType::kF8E5M2;
}

void dequantize_row(DType type, const std::byte* row, size_t begin, size_t end, float* out) {
  CHECK(is_weight_type(type));
  if (!is_block_type(type)) return dequantize_floats(type, row, begin, end, out);
  CHECK(begin % 32 == 0 && end % 32 == 0);
  QuantCodes codes;
  for (size_t block = begin / 32; block < end / 32; ++block) {
    read_codes(type, row, block, codes);
    for (int i = 0; i < 32; ++i) *out++ = codes.scale[i / 16] * static_cast<float>(codes.q[i]) - codes.min[i / 16];
  }
}

}  // namespace shoal
