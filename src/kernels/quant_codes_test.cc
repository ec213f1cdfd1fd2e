#include "kernels/quant_codes.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <vector>

#include "base/rng.h"
#include "gtest/gtest.h"
#include "tensor/half.h"

namespace shoal {
namespace {

uint64_t fnv1a(const std::vector<float>& values) {
  uint64_t hash = 1469598103934665603ull;
  for (float value : values) hash = (hash ^ std::bit_cast<uint32_t>(value)) * 1099511628211ull;
  return hash;
}

// Where the f16 scales stand in a block.
std::vector<size_t> scale_offsets(DType type) {
  switch (type) {
    case DType::kQ2_K: return {80, 82};
    case DType::kQ3_K: return {108};
    case DType::kQ6_K: return {208};
    case DType::kQ4_1: case DType::kQ5_1: case DType::kQ4_K: case DType::kQ5_K: return {0, 2};
    default: return {0};
  }
}

// The hashes are those of the values that the `gguf` package (PyPI, 0.19.0, gguf.quants.dequantize) makes of the same
// random blocks; it agrees bit for bit.
struct Golden {
  DType type;
  uint64_t hash;
};
constexpr Golden kGoldens[] = {
    {DType::kQ4_0, 0x4842e87001600b83}, {DType::kQ4_1, 0x806ea77a9b38f903}, {DType::kQ5_0, 0x273026e29c995383},
    {DType::kQ5_1, 0x1bd609a91902240f}, {DType::kQ8_0, 0x05750902e3616e43}, {DType::kIQ4_NL, 0xec202d6602b9da43},
    {DType::kQ2_K, 0x15c00b448fa92803}, {DType::kQ3_K, 0xecd4140f78e18183}, {DType::kQ4_K, 0x4d0df2eccd299313},
    {DType::kQ5_K, 0xcb96c502aa4c2e85}, {DType::kQ6_K, 0xd9e4a37cabea8baf}, {DType::kIQ4_XS, 0x956b4e5832834595},
};

TEST(DequantizeTest, EveryBlockTypeHasTheBitsOfTheGgufPackage) {
  Rng rng(42);
  for (const Golden& golden : kGoldens) {
    const size_t elements = 2048;
    const DTypeInfo& info = dtype_info(golden.type);
    std::vector<std::byte> bytes(*dtype_bytes(golden.type, elements));
    for (std::byte& b : bytes) b = static_cast<std::byte>(rng.bits() & 0xff);
    for (size_t at = 0; at < bytes.size(); at += info.block_bytes) {
      for (size_t offset : scale_offsets(golden.type)) {
        const uint16_t half = f16_from_f32(static_cast<float>(rng.uniform() * 2 - 1) * 0.05f);
        std::memcpy(bytes.data() + at + offset, &half, 2);
      }
    }
    std::vector<float> values(elements);
    dequantize_row(golden.type, bytes.data(), 0, elements, values.data());
    EXPECT_EQ(fnv1a(values), golden.hash) << info.name;
    std::vector<float> part(64);
    dequantize_row(golden.type, bytes.data(), 960, 1024, part.data());
    EXPECT_TRUE(std::equal(part.begin(), part.end(), values.begin() + 960)) << info.name;
  }
}

TEST(DequantizeTest, FloatTypesAreExact) {
  const uint16_t halves[] = {0x3c00, 0xc000, 0x0001};
  float out[3];
  dequantize_row(DType::kF16, reinterpret_cast<const std::byte*>(halves), 0, 3, out);
  EXPECT_EQ(out[0], 1.0f);
  EXPECT_EQ(out[1], -2.0f);
  EXPECT_EQ(out[2], 0x1p-24f);
  const uint8_t bytes[] = {0x38, 0xb8};
  dequantize_row(DType::kF8E4M3, reinterpret_cast<const std::byte*>(bytes), 1, 2, out);
  EXPECT_EQ(out[0], -1.0f);
}

// E2M1 with a power of two per block (OCP Microscaling Formats 1.0).
TEST(DequantizeTest, MxFp4IsAFourBitFloatTimesAPowerOfTwo) {
  std::vector<std::byte> row(17);
  for (const int exponent : {100, 127, 140}) {
    row[0] = static_cast<std::byte>(exponent);
    for (int i = 0; i < 16; ++i) row[1 + i] = static_cast<std::byte>(i | (15 - i) << 4);
    float out[32];
    dequantize_row(DType::kMXFP4, row.data(), 0, 32, out);
    for (int code = 0; code < 16; ++code) {
      const int e = code >> 1 & 3, m = code & 1;
      const float value = (e == 0 ? 0.5f * static_cast<float>(m) : std::ldexp(1.0f + 0.5f * static_cast<float>(m), e - 1)) * (code < 8 ? 1.0f : -1.0f);
      EXPECT_EQ(out[code], std::ldexp(value, exponent - 127)) << code;
      EXPECT_EQ(out[31 - code], out[code]);
    }
  }
  row[0] = std::byte{255};
  float out[32];
  dequantize_row(DType::kMXFP4, row.data(), 0, 32, out);
  EXPECT_TRUE(std::isnan(out[0]));
}

TEST(DequantizeTest, OnlyFloatsAndBlocksAreWeights) {
  EXPECT_TRUE(is_weight_type(DType::kQ2_K));
  EXPECT_TRUE(is_weight_type(DType::kBF16));
  EXPECT_FALSE(is_weight_type(DType::kI32));
  EXPECT_FALSE(is_weight_type(DType::kF64));
}

}  // namespace
}  // namespace shoal
