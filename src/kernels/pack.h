// Packing: rows as stored in a file -> panels (packed.h), and back for a single row.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/packed.h"
#include "tensor/dtype.h"

namespace shoal {

// The packed format that keeps a stored type best: floats as they are (FP8 as bf16), quantised types as packed.h says.
WeightFormat natural_format(DType type);

// Whether pack_panel can make `to` from `from`: the natural format, or kF32/kBF16/kQ8_0/kQ4_0 from any float type.
bool can_pack(DType from, WeightFormat to);

// Packs one panel of up to 16 rows; missing rows become zero. rows[i] points at a stored row of `columns` elements.
// `row_scales` (optional, FP8 checkpoints): rows[i] element k is multiplied by row_scales[i][k / scale_block].
// Quantising floats: per block of 32, Q8_0: d = f16(amax / 127), q = nearest-even(x / d); Q4_0: d = f16(m / -8) for m
// the element of largest magnitude, q = nearest-even(x / d) clamped to [-8, 7].
struct PanelSource {
  DType dtype;
  std::span<const std::byte* const> rows;  // at most kPanelRows
  size_t columns;
  std::span<const float* const> row_scales;  // empty, or one per row
  size_t scale_block = 0;
  bool read_soon = false;  // the panel is to stay in the CPU's caches
};
void pack_panel(const PanelSource& source, WeightFormat format, std::byte* panel);
// What this thread packed that is not read soon may be read by others from here on.
void flush_panels();

// f32 values of row `row` of a packed matrix, [columns]: what the kernels multiply by.
void unpack_row(const PackedMatrix& matrix, size_t row, float* out);

}  // namespace shoal
