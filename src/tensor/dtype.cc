#include "tensor/dtype.h"

#include <array>

#include "base/check.h"

namespace shoal {
namespace {

constexpr std::array<DTypeInfo, kDTypeCount> kInfo = {{
    {"F32", 1, 4},     {"F16", 1, 2},     {"BF16", 1, 2},    {"F64", 1, 8},     {"F8_E4M3", 1, 1}, {"F8_E5M2", 1, 1},
    {"I8", 1, 1},      {"I16", 1, 2},     {"I32", 1, 4},     {"I64", 1, 8},     {"U8", 1, 1},      {"U16", 1, 2},
    {"U32", 1, 4},     {"U64", 1, 8},     {"BOOL", 1, 1},    {"Q4_0", 32, 18},  {"Q4_1", 32, 20},  {"Q5_0", 32, 22},
    {"Q5_1", 32, 24},  {"Q8_0", 32, 34},  {"IQ4_NL", 32, 18}, {"MXFP4", 32, 17}, {"Q2_K", 256, 84}, {"Q3_K", 256, 110}, {"Q4_K", 256, 144},
    {"Q5_K", 256, 176}, {"Q6_K", 256, 210}, {"IQ4_XS", 256, 136},
}};

}  // namespace

const DTypeInfo& dtype_info(DType type) {
  CHECK_LT(static_cast<size_t>(type), kInfo.size());
  return kInfo[static_cast<size_t>(type)];
}

std::optional<DType> dtype_from_safetensors(std::string_view name) {
  for (int i = 0; i < kDTypeCount; ++i) {
    if (kInfo[i].block_elements == 1 && name == kInfo[i].name) return static_cast<DType>(i);
  }
  return std::nullopt;
}

std::optional<uint64_t> dtype_bytes(DType type, uint64_t elements) {
  const DTypeInfo& info = dtype_info(type);
  if (elements % info.block_elements != 0) return std::nullopt;
  uint64_t bytes = 0;
  if (__builtin_mul_overflow(elements / info.block_elements, info.block_bytes, &bytes)) return std::nullopt;
  return bytes;
}

}  // namespace shoal
