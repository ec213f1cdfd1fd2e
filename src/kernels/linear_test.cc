// Weights of every type, packed, and multiplied on every backend: the bits of the scalar oracle.
#include "kernels/test_backends.h"

#include <cmath>
#include <cstring>
#include <span>

#include "kernels/pack.h"
#include "kernels/quant_codes.h"
#include "tensor/half.h"

namespace shoal {
namespace {

// A random matrix in a stored type. Block types are random bytes with tame scales.
std::vector<std::byte> random_rows(Rng& rng, DType type, size_t rows, size_t columns) {
  const DTypeInfo& info = dtype_info(type);
  std::vector<std::byte> bytes(rows * *dtype_bytes(type, columns));
  for (std::byte& b : bytes) b = static_cast<std::byte>(rng.bits() & 0xff);
  const auto put = [&](size_t at, float value, DType as) {
    const uint16_t half = as == DType::kBF16 ? bf16_from_f32(value) : f16_from_f32(value);
    std::memcpy(bytes.data() + at, &half, 2);
  };
  for (size_t at = 0; at < bytes.size(); at += info.block_bytes) {
    const float value = static_cast<float>(rng.uniform() * 2 - 1);
    switch (type) {
      case DType::kF32: std::memcpy(bytes.data() + at, &value, 4); break;
      case DType::kF16: case DType::kBF16: put(at, value, type); break;
      case DType::kF8E4M3: case DType::kF8E5M2: bytes[at] &= std::byte{0x3f}; break;
      case DType::kQ2_K: put(at + 80, value * 0.01f, type), put(at + 82, value * 0.02f, type); break;
      case DType::kQ3_K: put(at + 108, value * 0.01f, type); break;
      case DType::kQ6_K: put(at + 208, value * 0.001f, type); break;
      case DType::kQ4_1: case DType::kQ5_1: case DType::kQ4_K: case DType::kQ5_K:
        put(at, value * 0.01f, type), put(at + 2, value * 0.03f, type); break;
      case DType::kMXFP4: bytes[at] = static_cast<std::byte>(115 + rng.below(8)); break;
      default: put(at, value * 0.02f, type);
    }
  }
  return bytes;
}

struct Packed {
  std::vector<std::byte> bytes;
  PackedMatrix matrix;
  std::vector<std::byte> stored;
};

Packed pack(const std::vector<std::byte>& stored, DType type, WeightFormat format, size_t rows, size_t columns) {
  Packed packed{std::vector<std::byte>(packed_bytes(format, rows, columns)), {}, stored};
  const size_t row_bytes = *dtype_bytes(type, columns);
  for (size_t row = 0; row < rows; row += kPanelRows) {
    std::vector<const std::byte*> sources;
    for (size_t r = row; r < std::min<size_t>(rows, row + kPanelRows); ++r) sources.push_back(stored.data() + r * row_bytes);
    pack_panel({type, sources, columns, {}, 0}, format, packed.bytes.data() + row / kPanelRows * panel_bytes(format, columns));
  }
  packed.matrix.format = format;
  packed.matrix.rows = static_cast<uint32_t>(rows);
  packed.matrix.columns = static_cast<uint32_t>(columns);
  packed.matrix.data = packed.bytes.data();
  return packed;
}

constexpr DType kAllTypes[] = {DType::kF32, DType::kF16, DType::kBF16, DType::kF8E4M3, DType::kQ4_0, DType::kQ4_1,
                               DType::kQ5_0, DType::kQ5_1, DType::kQ8_0, DType::kIQ4_NL, DType::kQ2_K, DType::kQ3_K,
                               DType::kQ4_K, DType::kQ5_K, DType::kQ6_K, DType::kIQ4_XS, DType::kMXFP4};

TEST(PackTest, UnpackingGivesBackTheStoredNumbers) {
  Rng rng(1);
  for (DType type : kAllTypes) {
    SCOPED_TRACE(dtype_name(type));
    const size_t rows = 21, columns = 512;
    const Packed packed = pack(random_rows(rng, type, rows, columns), type, natural_format(type), rows, columns);
    // f16 scales of kQ8_M and bf16 of FP8 (exact without row scales) are the only roundings; see packed.h.
    const float tolerance = type == DType::kQ5_K || type == DType::kQ2_K || type == DType::kIQ4_XS ? 0x1p-10f : 0.0f;
    Floats want(columns), got(columns);
    for (size_t row = 0; row < rows; ++row) {
      dequantize_row(type, packed.stored.data() + row * *dtype_bytes(type, columns), 0, columns, want.data());
      unpack_row(packed.matrix, row, got.data());
      float top = 0;
      for (float v : want) top = std::max(top, std::fabs(v));
      for (size_t k = 0; k < columns; ++k) ASSERT_NEAR(got[k], want[k], tolerance * top) << row << ' ' << k;
    }
  }
}

TEST(PackTest, QuantisingKeepsWithinHalfAStepOfTheBlock) {
  Rng rng(2);
  const size_t rows = 16, columns = 64;
  const auto stored = random_rows(rng, DType::kF32, rows, columns);
  for (auto [format, steps] : {std::pair{WeightFormat::kQ8_0, 127.0f}, std::pair{WeightFormat::kQ4_0, 8.0f}}) {
    const Packed packed = pack(stored, DType::kF32, format, rows, columns);
    Floats want(columns), got(columns);
    for (size_t row = 0; row < rows; ++row) {
      dequantize_row(DType::kF32, stored.data() + row * columns * 4, 0, columns, want.data());
      unpack_row(packed.matrix, row, got.data());
      for (size_t k = 0; k < columns; ++k) ASSERT_NEAR(got[k], want[k], 1.01f / steps) << weight_format_name(format);
    }
  }
}

struct LinearCase {
  size_t rows, outputs, columns;
  uint32_t chunk_unit;
  bool bias;
  bool add = false;
};
constexpr LinearCase kLinearCases[] = {
    {1, 16, 256, 0, false}, {1, 80, 512, 0, true, true},   {2, 33, 256, 32, true},  {3, 17, 512, 64, false},
    {7, 48, 768, 96, true}, {13, 5, 256, 256, false, true}, {25, 64, 512, 32, true}, {1, 200, 256, 32, false},
    {29, 72, 1024, 0, true}, {23, 40, 2048, 64, false},  // rows whose distance is that of the sets of a cache
    {53, 40, 256, 32, true}, {107, 40, 256, 0, false}, {197, 40, 256, 32, true}, {214, 40, 256, 0, false},  // enough to stage panels for them, and some over
};

void check_linear(const Kernels& kernels, const LinearCase& c, DType type, WeightFormat format, std::span<std::byte> stage) {
  Rng rng(c.rows * 1000 + c.columns);
  Packed packed = pack(random_rows(rng, type, c.outputs, c.columns), type, format, c.outputs, c.columns);
  const Floats x = random_floats(rng, c.rows * c.columns), bias = random_floats(rng, c.outputs);
  packed.matrix.chunk_unit = c.chunk_unit;
  packed.matrix.bias = c.bias ? bias.data() : nullptr;
  const size_t stride = c.outputs + 3;
  Floats want(c.rows * stride, -7.0f), got = want;
  const auto run = [&](const Kernels& k, float* out) {
    std::vector<QuantBlock> quantized(c.rows * quant_row_stride(c.columns));
    for (size_t m = 0; m < c.rows; ++m) {
      k.quantize_row(x.data() + m * c.columns, c.columns, quantized.data() + m * quant_row_stride(c.columns));
    }
    const LinearCall call{packed.matrix, c.rows, x.data(), c.columns, quantized.data(), out, stride, c.add, stage};
    const size_t middle = packed.matrix.panels() / 2;  // panels may be split anywhere
    k.linear(call, middle, packed.matrix.panels());
    k.linear(call, 0, middle);
  };
  run(ref_kernels(), want.data());
  run(kernels, got.data());
  ASSERT_TRUE(same_bits(want, got)) << weight_format_name(format) << " rows " << c.rows << " outputs " << c.outputs;
}

TEST(LinearTest, EveryBackendAndFormatHasTheBitsOfTheOracle) {
  for_each_backend([](const Kernels& kernels) {
    for (const LinearCase& c : kLinearCases) {
      for (DType type : {DType::kF32, DType::kF16, DType::kBF16, DType::kQ8_0, DType::kQ4_0, DType::kQ4_1, DType::kQ2_K,
                         DType::kQ4_K, DType::kQ6_K}) {
        // No memory to work in, not enough for all panels, enough.
        for (const size_t bytes : {0, 80 << 10, 1 << 20}) {
          alignas(64) static std::byte stage[1 << 20];
          check_linear(kernels, c, type, natural_format(type), {stage, bytes});
        }
      }
    }
  });
}

TEST(LinearTest, TilesOfAnyNumberOfRowsHaveTheBitsOfTheOracle) {
  for_each_backend([](const Kernels& kernels) {
    for (size_t rows = 1; rows <= 21; ++rows) {
      for (DType type : {DType::kF32, DType::kF16, DType::kQ8_0, DType::kQ4_0, DType::kQ2_K, DType::kQ4_K, DType::kQ6_K}) {
        check_linear(kernels, {rows, 75, 256, rows % 3 == 0 ? 32u : 0u, false, rows % 2 == 0}, type, natural_format(type), {});
      }
    }
  });
}

TEST(LinearTest, ARowsBitsDoNotDependOnTheRowsBesideIt) {
  Rng rng(5);
  const size_t rows = 29, outputs = 40, columns = 256;
  for (DType type : {DType::kF32, DType::kQ8_0}) {
    Packed packed = pack(random_rows(rng, type, outputs, columns), type, natural_format(type), outputs, columns);
    packed.matrix.chunk_unit = 32;
    const Floats x = random_floats(rng, rows * columns);
    std::vector<QuantBlock> quantized(rows * quant_row_stride(columns));
    const Kernels kernels = best_kernels();
    for (size_t m = 0; m < rows; ++m) kernels.quantize_row(&x[m * columns], columns, &quantized[m * quant_row_stride(columns)]);
    Floats together(rows * outputs), alone(rows * outputs);
    kernels.linear({packed.matrix, rows, x.data(), columns, quantized.data(), together.data(), outputs}, 0, 3);
    for (size_t m = 0; m < rows; ++m) {
      kernels.linear({packed.matrix, 1, &x[m * columns], columns, &quantized[m * quant_row_stride(columns)], &alone[m * outputs], outputs}, 0, 3);
    }
    EXPECT_TRUE(same_bits(together, alone));
  }
}

TEST(LinearTest, IsCloseToDoublePrecision) {
  Rng rng(6);
  const size_t outputs = 16, columns = 1024;
  const Packed packed = pack(random_rows(rng, DType::kF32, outputs, columns), DType::kF32, WeightFormat::kF32, outputs, columns);
  const Floats x = random_floats(rng, columns);
  Floats got(outputs), w(columns);
  best_kernels().linear({packed.matrix, 1, x.data(), columns, nullptr, got.data(), outputs}, 0, 1);
  for (size_t row = 0; row < outputs; ++row) {
    unpack_row(packed.matrix, row, w.data());
    double want = 0, norm = 0;
    for (size_t k = 0; k < columns; ++k) want += double{w[k]} * x[k], norm += std::fabs(double{w[k]} * x[k]);
    EXPECT_NEAR(got[row], want, norm * 0x1p-24 * 16);
  }
}

}  // namespace
}  // namespace shoal
