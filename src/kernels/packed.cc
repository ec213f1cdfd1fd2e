#include "kernels/packed.h"

#include "base/check.h"

namespace shoal {
namespace {

struct FormatInfo {
  const char* name;
  uint32_t columns;  // of a block
  uint32_t bytes;    // of a panel block
};

constexpr FormatInfo kFormats[] = {
    {"f32", 1, 64},      {"f16", 1, 32},      {"bf16", 1, 32},
    {"q8_0", 32, 544},   {"q4_0", 32, 288},   {"q8_m", 32, 640},
    {"q4_k", 256, 2368}, {"q6_k", 256, 3360},
};

}  // namespace

const char* weight_format_name(WeightFormat format) { return kFormats[static_cast<size_t>(format)].name; }

uint32_t format_columns(WeightFormat format) { return kFormats[static_cast<size_t>(format)].columns; }

uint64_t panel_bytes(WeightFormat format, uint64_t columns) {
  const FormatInfo& info = kFormats[static_cast<size_t>(format)];
  CHECK_EQ(columns % info.columns, 0u);
  return columns / info.columns * info.bytes;
}

uint64_t packed_bytes(WeightFormat format, uint64_t rows, uint64_t columns) {
  return (rows + kPanelRows - 1) / kPanelRows * panel_bytes(format, columns);
}

}  // namespace shoal
