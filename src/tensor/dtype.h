// Element types of stored tensors: plain numbers, and block types that code a run of elements together.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace shoal {

enum class DType : uint8_t {
  kF32, kF16, kBF16, kF64, kF8E4M3, kF8E5M2,
  kI8, kI16, kI32, kI64, kU8, kU16, kU32, kU64, kBool,
  // Block types, byte layouts as in the GGUF specification (ggml-quants). 32 elements per block:
  kQ4_0, kQ4_1, kQ5_0, kQ5_1, kQ8_0, kIQ4_NL, kMXFP4,
  // 256 elements per block:
  kQ2_K, kQ3_K, kQ4_K, kQ5_K, kQ6_K, kIQ4_XS,
};
constexpr int kDTypeCount = static_cast<int>(DType::kIQ4_XS) + 1;

struct DTypeInfo {
  const char* name;         // "F32", "Q4_K"
  uint32_t block_elements;  // 1 for plain numbers
  uint32_t block_bytes;
};

const DTypeInfo& dtype_info(DType type);
inline const char* dtype_name(DType type) { return dtype_info(type).name; }
inline bool is_block_type(DType type) { return dtype_info(type).block_elements > 1; }

// The type of that name as safetensors writes it ("F32", "BF16", "F8_E4M3" ...); nullopt if there is none.
std::optional<DType> dtype_from_safetensors(std::string_view name);

// Bytes of `elements` consecutive elements; nullopt if they are not whole blocks or the count overflows.
std::optional<uint64_t> dtype_bytes(DType type, uint64_t elements);

}  // namespace shoal
