// Weights as the kernels read them: panels of 16 interleaved output rows, so that one SIMD lane is one output.
//
// A panel of a plain float format is [K][16]. A panel of a quantised format is K/32 (or K/256) blocks one after the
// other; the codes of 32 columns are eight *lines* of [16 rows][4 columns] int8, stored packed:
//
//   format  block of      bytes per panel block, in order
//   kQ8_0   32 columns    8 lines of 64 int8; f16 scale[16]
//   kQ4_0   32 columns    4 x 64 bytes: low nibble = line g, high nibble = line g + 4, code + 8; f16 scale[16]
//   kQ8_M   32 columns    8 lines of 64 int8; f16 scale[2][16]; f16 min[2][16]   (per 16 columns: scale * code - min)
//   kQ4_K   256 columns   f16 d[16]; f16 dmin[16]; 8 x { u8 scale[16]; u8 min[16]; nibbles as kQ4_0, code unsigned }
//   kQ6_K   256 columns   f16 d[16]; 8 x { i8 scale[2][16]; low nibbles as kQ4_0; 2 x 64 bytes of high bits }, code + 32:
//                         bits 2s..2s+1 of byte line h are the high bits of line h + 2 s
//
// Every format keeps the numbers of the stored type exactly, except kQ8_M (f16 scales: Q4_1, Q5_1 exact; Q5_K, Q2_K to
// 2^-12), IQ4_XS in kQ8_0 (to 2^-12) and MXFP4 in kQ8_0 (exact for scales of an f16). Rows beyond the matrix in its last panel are zero.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

namespace shoal {

constexpr uint32_t kPanelRows = 16;
constexpr uint32_t kQuantBlock = 32;  // columns that share one activation scale
constexpr uint32_t kChunks = 8;       // partial sums of a projection that a tensor-parallel gang splits along K

enum class WeightFormat : uint8_t { kF32, kF16, kBF16, kQ8_0, kQ4_0, kQ8_M, kQ4_K, kQ6_K };

const char* weight_format_name(WeightFormat format);
inline bool is_quantized(WeightFormat format) { return format >= WeightFormat::kQ8_0; }
// Columns must be a multiple of this.
uint32_t format_columns(WeightFormat format);
// Bytes of one panel of `columns` columns. REQUIRES: columns % format_columns(format) == 0.
uint64_t panel_bytes(WeightFormat format, uint64_t columns);
// Bytes of a whole matrix [rows, columns].
uint64_t packed_bytes(WeightFormat format, uint64_t rows, uint64_t columns);

// A packed matrix [rows, columns]: y = W x + bias.
struct PackedMatrix {
  WeightFormat format = WeightFormat::kF32;
  uint32_t rows = 0;     // outputs
  uint32_t columns = 0;  // K
  const std::byte* data = nullptr;
  const float* bias = nullptr;  // [rows] or none
  // 0: one sum along K. Otherwise kChunks sums whose boundaries are multiples of chunk_unit columns, added as a tree;
  // a multiple of kQuantBlock for quantised formats.
  uint32_t chunk_unit = 0;

  uint32_t panels() const { return (rows + kPanelRows - 1) / kPanelRows; }
};

// Columns [first, second) of chunk `chunk`; may be empty. The last chunk takes what is left of whole units.
inline std::pair<uint32_t, uint32_t> chunk_columns(uint32_t columns, uint32_t chunk_unit, uint32_t chunk) {
  const uint64_t units = columns / chunk_unit;
  return {static_cast<uint32_t>(units * chunk / kChunks * chunk_unit),
          static_cast<uint32_t>(units * (chunk + 1) / kChunks * chunk_unit)};
}

// 32 quantised activations of one row (quantize_row of kernels.h defines the rounding). value = q * scale.
struct alignas(64) QuantBlock {
  int8_t q[kQuantBlock];       // codes in order
  float scale;
  int32_t sum[2];              // of the first and of the last 16 codes
};
static_assert(sizeof(QuantBlock) == 64);

// From one quantised row to the next, in QuantBlocks. The blocks of a row come first. The other half has room for its codes as int16,
// 32 in the place of a block, per 4 columns in the order 0 2 1 3: what 16-bit multiply-adds take; other targets leave it untouched
// (Kernels::quant_pairs), and keep twice as many rows in a cache.
constexpr uint64_t quant_row_stride(uint64_t columns) { return 2 * ((columns + kQuantBlock - 1) / kQuantBlock); }

}  // namespace shoal
