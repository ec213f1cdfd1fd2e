// The stored quantised types, block by block, as integers and scales. One reader serves dequantisation and packing, so
// the two cannot disagree about a layout.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tensor/dtype.h"

namespace shoal {

// 32 consecutive elements of a row: value[i] = scale[i / 16] * q[i] - min[i / 16].
struct QuantCodes {
  int8_t q[32];
  float scale[2];
  float min[2];
  // How K-quants store them: scale[h] = f16(d) * sub_scale[h], min[h] = f16(dmin) * sub_min[h]; for the others d alone.
  uint16_t d;
  uint16_t dmin;
  int8_t sub_scale[2];
  uint8_t sub_min[2];
};

// Reads elements [32 block, 32 block + 32) of the row at `row`. Layouts: GGUF specification, ggml-quants.
// REQUIRES: is_block_type(type).
void read_codes(DType type, const std::byte* row, size_t block, QuantCodes& codes);

// f32 values of elements [begin, end) of a row of any float or block type: what the stored numbers mean, with one
// rounding where the type's formula needs one. REQUIRES: a float or block type; begin and end multiples of 32 for block
// types.
void dequantize_row(DType type, const std::byte* row, size_t begin, size_t end, float* out);

// A row of DType::kMXFP4 from its parts as folders hold them: blocks [columns / 32][16], consecutive elements in a byte, the lower
// one first; scales [columns / 32].
void join_mxfp4(const std::byte* blocks, const std::byte* scales, size_t columns, std::byte* row);

// True for the types that dequantize_row takes: floats up to 32 bits and all block types.
bool is_weight_type(DType type);

}  // namespace shoal
