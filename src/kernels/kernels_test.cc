// One table of cases per operation, run on every backend of this machine. Bits must equal those of the scalar oracle.
#include "kernels/cpu/targets.h"

#include "kernels/kernels.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <vector>

#include "base/rng.h"
#include "gtest/gtest.h"
#include "hwy/highway.h"
#include "kernels/pack.h"
#include "kernels/quant_codes.h"
#include "kernels/ref/math.h"
#include "kernels/ref/ref.h"
#include "tensor/half.h"

namespace shoal {
namespace {

using Floats = std::vector<float>;

Floats random_floats(Rng& rng, size_t n, float range = 1.0f) {
  Floats x(n);
  for (float& v : x) v = static_cast<float>(rng.uniform() * 2 - 1) * range;
  return x;
}

// Runs `test` with every SIMD backend of this machine, one after the other.
void for_each_backend(const std::function<void(const Kernels&)>& test) {
  for (int64_t target : simd_targets()) {
    hwy::SetSupportedTargetsForTest(target);
    const Kernels kernels = best_kernels();
    hwy::SetSupportedTargetsForTest(0);
    SCOPED_TRACE(kernels.name);
    test(kernels);
  }
}

::testing::AssertionResult same_bits(const Floats& a, const Floats& b) {
  if (a.size() != b.size()) return ::testing::AssertionFailure() << "sizes differ";
  for (size_t i = 0; i < a.size(); ++i) {
    if (std::bit_cast<uint32_t>(a[i]) != std::bit_cast<uint32_t>(b[i])) {
      return ::testing::AssertionFailure() << "element " << i << ": " << a[i] << " and " << b[i];
    }
  }
  return ::testing::AssertionSuccess();
}

// Error in units of the last place of the true value.
double ulps(float got, double want) {
  const int exponent = std::max(std::ilogb(want), -126);
  return std::fabs(static_cast<double>(got) - want) / std::ldexp(1.0, exponent - 23);
}

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
                               DType::kQ4_K, DType::kQ5_K, DType::kQ6_K, DType::kIQ4_XS};

TEST(BackendTest, AMachineWithFmaHasSimdAndItsTargetsAreNamed) {
  for (int64_t target : simd_targets()) {
    hwy::SetSupportedTargetsForTest(target);
    EXPECT_STREQ(best_kernels().name, hwy::TargetName(target & -target));
    hwy::SetSupportedTargetsForTest(0);
  }
  EXPECT_STREQ(ref_kernels().name, "scalar");
}

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
    std::vector<QuantBlock> quantized(c.rows * c.columns / kQuantBlock);
    for (size_t m = 0; m < c.rows; ++m) {
      k.quantize_row(x.data() + m * c.columns, c.columns, quantized.data() + m * (c.columns / kQuantBlock));
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

TEST(LinearTest, ARowsBitsDoNotDependOnTheRowsBesideIt) {
  Rng rng(5);
  const size_t rows = 29, outputs = 40, columns = 256;
  for (DType type : {DType::kF32, DType::kQ8_0}) {
    Packed packed = pack(random_rows(rng, type, outputs, columns), type, natural_format(type), outputs, columns);
    packed.matrix.chunk_unit = 32;
    const Floats x = random_floats(rng, rows * columns);
    std::vector<QuantBlock> quantized(rows * columns / 32);
    const Kernels kernels = best_kernels();
    for (size_t m = 0; m < rows; ++m) kernels.quantize_row(&x[m * columns], columns, &quantized[m * columns / 32]);
    Floats together(rows * outputs), alone(rows * outputs);
    kernels.linear({packed.matrix, rows, x.data(), columns, quantized.data(), together.data(), outputs}, 0, 3);
    for (size_t m = 0; m < rows; ++m) {
      kernels.linear({packed.matrix, 1, &x[m * columns], columns, &quantized[m * columns / 32], &alone[m * outputs], outputs}, 0, 3);
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

TEST(ElementwiseTest, EveryBackendHasTheBitsOfTheOracle) {
  const Kernels& ref = ref_kernels();
  for_each_backend([&](const Kernels& kernels) {
    Rng rng(7);
    for (size_t n : {1, 15, 16, 40, 64, 100, 257}) {
      const Floats x = random_floats(rng, n, 8), y = random_floats(rng, n, 3);
      const auto same = [&](const std::function<void(const Kernels&, Floats&)>& op) {
        Floats want = x, got = x;
        op(ref, want);
        op(kernels, got);
        return same_bits(want, got);
      };
      EXPECT_TRUE(same([&](const Kernels& k, Floats& v) { k.rms_norm(v.data(), y.data(), 1e-5f, n, v.data()); })) << n;
      EXPECT_TRUE(same([&](const Kernels& k, Floats& v) { k.add(v.data(), y.data(), n); }));
      EXPECT_TRUE(same([&](const Kernels& k, Floats& v) { k.scale(v.data(), 0.3f, n); }));
      EXPECT_TRUE(same([&](const Kernels& k, Floats& v) { k.silu_mul(x.data(), y.data(), n, v.data()); }));
      EXPECT_TRUE(same([&](const Kernels& k, Floats& v) { k.gelu_mul(x.data(), y.data(), n, v.data()); }));
      EXPECT_TRUE(same([&](const Kernels& k, Floats& v) { k.softcap(v.data(), 3.0f, n); }));
    }
  });
}

TEST(ElementwiseTest, SpecialValuesOfTheExponentialHaveTheSameBits) {
  Floats x = {0.0f, -0.0f, 88.72283f, 88.73f, 1000.0f, -87.33654f, -87.4f, -1000.0f, std::numeric_limits<float>::infinity(),
              -std::numeric_limits<float>::infinity(), 1e-30f, -1e-30f, 127.5f, -103.9f};
  Rng rng(8);
  for (int i = 0; i < 20000; ++i) x.push_back(static_cast<float>(rng.uniform() * 240 - 120));
  const Floats one(x.size(), 1.0f);
  for_each_backend([&](const Kernels& kernels) {
    Floats want(x.size()), got(x.size());
    ref::silu_mul(x.data(), one.data(), x.size(), want.data());
    kernels.silu_mul(x.data(), one.data(), x.size(), got.data());
    for (size_t i = 0; i < x.size(); ++i) {
      if (std::isnan(want[i])) want[i] = got[i] = 0;  // -inf * 0: not a number on every target, in whatever bits
    }
    EXPECT_TRUE(same_bits(want, got));
  });
}

TEST(MathTest, ExpAndTanhAreAccurateToAFewUlps) {
  Rng rng(9);
  double exp_worst = 0, tanh_worst = 0;
  for (int i = 0; i < 300000; ++i) {
    const float x = static_cast<float>(rng.uniform() * 175 - 87);
    exp_worst = std::max(exp_worst, ulps(ref::exp(x), std::exp(static_cast<double>(x))));
    const float y = static_cast<float>((rng.uniform() * 2 - 1) * (i % 2 == 0 ? 0.4 : 12));
    if (y != 0) tanh_worst = std::max(tanh_worst, ulps(ref::tanh(y), std::tanh(static_cast<double>(y))));
  }
  EXPECT_LT(exp_worst, 1.5);
  EXPECT_LT(tanh_worst, 3.0);
  EXPECT_EQ(ref::exp(0.0f), 1.0f);
  EXPECT_EQ(ref::exp(-std::numeric_limits<float>::infinity()), 0.0f);
}

TEST(QuantizeRowTest, EveryBackendHasTheBitsOfTheOracle) {
  Rng rng(10);
  Floats x = random_floats(rng, 320, 5);
  std::fill(x.begin() + 32, x.begin() + 64, 0.0f);
  std::vector<QuantBlock> want(10), got(10);
  ref::quantize_row(x.data(), x.size(), want.data());
  for_each_backend([&](const Kernels& kernels) {
    kernels.quantize_row(x.data(), x.size(), got.data());
    for (size_t b = 0; b < want.size(); ++b) {
      EXPECT_EQ(std::memcmp(&want[b], &got[b], offsetof(QuantBlock, sum) + sizeof(QuantBlock::sum)), 0) << b;
    }
  });
}

TEST(RopeTest, EveryBackendHasTheBitsOfTheOracle) {
  for_each_backend([](const Kernels& kernels) {
    Rng rng(11);
    for (bool interleaved : {false, true}) {
      for (auto [head_dim, half] : {std::pair{16u, 8u}, {40u, 20u}, {64u, 32u}, {128u, 64u}, {96u, 24u}}) {
        const Floats cos = random_floats(rng, half), sin = random_floats(rng, half);
        Floats want = random_floats(rng, 3 * head_dim), got = want;
        ref::rope({want.data(), 3, head_dim, half, cos.data(), sin.data(), interleaved});
        kernels.rope({got.data(), 3, head_dim, half, cos.data(), sin.data(), interleaved});
        EXPECT_TRUE(same_bits(want, got)) << head_dim;
      }
    }
  });
}

struct AttentionCase {
  KvFormat format;
  uint32_t head_dim, group, position, rows, window;
  float softcap;
};
constexpr AttentionCase kAttentionCases[] = {
    {KvFormat::kF32, 16, 2, 0, 1, 0, 0},    {KvFormat::kF32, 40, 2, 0, 37, 0, 0},   {KvFormat::kF16, 64, 4, 15, 3, 0, 0},
    {KvFormat::kBF16, 128, 1, 31, 5, 0, 0}, {KvFormat::kF32, 32, 3, 5, 40, 16, 0},  {KvFormat::kF16, 32, 7, 70, 2, 33, 50},
    {KvFormat::kF16, 64, 8, 1100, 2, 0, 0}, {KvFormat::kF32, 16, 2, 500, 40, 0, 0}, {KvFormat::kF32, 16, 2, 1030, 4, 520, 30},
    {KvFormat::kBF16, 256, 2, 20, 9, 0, 0}, {KvFormat::kQ8_0, 64, 4, 0, 37, 0, 0},  {KvFormat::kQ8_0, 40, 2, 90, 30, 0, 0},
    {KvFormat::kQ8_0, 128, 8, 1100, 1, 0, 0}, {KvFormat::kQ8_0, 96, 1, 700, 3, 550, 20}, {KvFormat::kF16, 128, 1, 60, 70, 0, 0},
    {KvFormat::kF16, 80, 11, 47, 3, 0, 0},
};

// A KV cache with `tokens` tokens of random numbers; every slot that was not written is NaN.
struct Cache {
  std::vector<std::vector<std::byte>> blocks;
  std::vector<std::byte*> pointers;
};
Cache make_cache(Rng& rng, const AttentionCase& c, const Kernels& kernels) {
  const uint32_t tokens = c.position + c.rows;
  const size_t head_bytes = kv_head_bytes(c.format, c.head_dim);
  Cache cache;
  for (uint32_t b = 0; b <= (tokens - 1) / kKvTokens; ++b) cache.blocks.emplace_back(2 * head_bytes, std::byte{0xff});
  for (auto& block : cache.blocks) cache.pointers.push_back(block.data());
  for (uint32_t t = 0; t < tokens; ++t) {
    const Floats k = random_floats(rng, c.head_dim, 2), v = random_floats(rng, c.head_dim);
    if (c.window != 0 && t + c.window + 16 < c.position) continue;  // long out of every window: never written here
    std::byte* block = cache.pointers[t / kKvTokens];
    kernels.store_kv({k.data(), v.data(), block, block + head_bytes, 0, t % kKvTokens, 1, c.head_dim, c.format});
  }
  return cache;
}

AttentionCall call_of(const AttentionCase& c, const Cache& cache, const Floats& q, Floats& out) {
  AttentionCall call;
  call.q = q.data();
  call.out = out.data();
  call.q_stride = call.out_stride = c.group * c.head_dim;
  call.blocks = cache.pointers.data();
  call.value_offset = kv_head_bytes(c.format, c.head_dim);
  call.format = c.format;
  call.head_dim = c.head_dim;
  call.group = c.group;
  call.rows = c.rows;
  call.position = c.position;
  call.window = c.window;
  call.scale = 1.0f / std::sqrt(static_cast<float>(c.head_dim));
  call.softcap = c.softcap;
  return call;
}

// The number that a cache holds for a channel of a token.
double stored_number(const AttentionCase& c, const Cache& cache, bool of_value, uint32_t token, uint32_t channel) {
  const uint32_t channels = kv_channels(c.format, c.head_dim), slot = token % kKvTokens;
  const std::byte* p = cache.pointers[token / kKvTokens] + (of_value ? kv_head_bytes(c.format, c.head_dim) : 0);
  const size_t at = of_value ? size_t{slot} * channels + channel : size_t{channel} * kKvTokens + slot;
  float value, scale = 1;
  if (c.format == KvFormat::kQ8_0) {
    dequantize_row(DType::kF16, p + size_t{channels} * kKvTokens, channel / 32 * kKvTokens + slot, channel / 32 * kKvTokens + slot + 1, &scale);
    return static_cast<double>(scale) * static_cast<int8_t>(p[at]);
  }
  const DType type = c.format == KvFormat::kF32 ? DType::kF32 : c.format == KvFormat::kF16 ? DType::kF16 : DType::kBF16;
  dequantize_row(type, p, at, at + 1, &value);
  return value;
}

TEST(StoreKvTest, NumbersComeBackToWithinTheRoundingOfTheirFormat) {
  for (auto [format, error] : {std::pair{KvFormat::kF32, 0.0}, {KvFormat::kF16, 0x1p-11}, {KvFormat::kBF16, 0x1p-8}, {KvFormat::kQ8_0, 1.01 / 254}}) {
    for (uint32_t head_dim : {40u, 64u}) {
      const AttentionCase c{format, head_dim, 1, 0, 16, 0, 0};
      Rng rng(12);
      const Cache cache = make_cache(rng, c, ref_kernels());
      Rng again(12);
      for (uint32_t t = 0; t < c.rows; ++t) {
        const Floats k = random_floats(again, head_dim, 2), v = random_floats(again, head_dim);
        for (uint32_t d = 0; d < head_dim; ++d) {
          ASSERT_NEAR(stored_number(c, cache, false, t, d), k[d], 2 * error);
          ASSERT_NEAR(stored_number(c, cache, true, t, d), v[d], error);
        }
      }
    }
  }
}

TEST(StoreKvTest, Q8_0HoldsZerosTinyAndHugeNumbers) {
  const AttentionCase c{KvFormat::kQ8_0, 32, 1, 0, 1, 0, 0};
  Cache cache;
  cache.blocks.emplace_back(2 * kv_head_bytes(c.format, c.head_dim), std::byte{0xff});
  cache.pointers.push_back(cache.blocks[0].data());
  const auto stored = [&](const Floats& k) {
    ref::store_kv({k.data(), k.data(), cache.pointers[0], cache.pointers[0] + kv_head_bytes(c.format, 32), 0, 0, 1, 32, c.format});
    return stored_number(c, cache, false, 0, 3);
  };
  Floats k(32, 0.0f);
  EXPECT_EQ(stored(k), 0.0);
  k[3] = 1e-20f;
  EXPECT_EQ(stored(k), 0.0);
  k[3] = 1e20f;
  EXPECT_EQ(stored(k), 127.0 * 65504);  // as f16 would, at its largest
  k[3] = -std::numeric_limits<float>::infinity();
  EXPECT_EQ(stored(k), -127.0 * 65504);
}

TEST(AttentionTest, EveryBackendHasTheBitsOfTheOracleAndReadsNoUnwrittenSlot) {
  for_each_backend([](const Kernels& kernels) {
    for (const AttentionCase& c : kAttentionCases) {
      Rng rng(c.position + c.head_dim);
      const Cache cache = make_cache(rng, c, kernels);
      const Floats q = random_floats(rng, c.rows * c.group * c.head_dim);
      Floats want(q.size()), got(q.size());
      ref::attention(call_of(c, cache, q, want));
      kernels.attention(call_of(c, cache, q, got));
      for (float v : want) ASSERT_TRUE(std::isfinite(v));
      EXPECT_TRUE(same_bits(want, got)) << "head_dim " << c.head_dim << " position " << c.position;
    }
  });
}

TEST(AttentionTest, IsSoftmaxOfTheScoresInDoublePrecision) {
  for (const AttentionCase& c : kAttentionCases) {
    Rng rng(3);
    const Cache cache = make_cache(rng, c, ref_kernels());
    const Floats q = random_floats(rng, c.rows * c.group * c.head_dim);
    Floats got(q.size());
    const AttentionCall call = call_of(c, cache, q, got);
    best_kernels().attention(call);
    const uint32_t row = c.rows - 1, position = c.position + row;
    const uint32_t from = c.window != 0 && position + 1 > c.window ? position + 1 - c.window : 0;
    std::vector<double> o(c.head_dim, 0.0);
    double denominator = 0;
    for (uint32_t t = from; t <= position; ++t) {
      double s = 0;
      for (uint32_t d = 0; d < c.head_dim; ++d) s += q[row * call.q_stride + d] * stored_number(c, cache, false, t, d);
      s *= call.scale;
      if (c.softcap > 0) s = c.softcap * std::tanh(s / c.softcap);
      const double p = std::exp(s);
      denominator += p;
      for (uint32_t d = 0; d < c.head_dim; ++d) o[d] += p * stored_number(c, cache, true, t, d);
    }
    for (uint32_t d = 0; d < c.head_dim; ++d) ASSERT_NEAR(got[row * call.q_stride + d], o[d] / denominator, 2e-6) << d;
  }
}

TEST(AttentionTest, SegmentsComputedApartAndMergedHaveTheBitsOfTheWhole) {
  for_each_backend([](const Kernels& kernels) {
    for (const AttentionCase& c : kAttentionCases) {
      Rng rng(13);
      const Cache cache = make_cache(rng, c, kernels);
      const Floats q = random_floats(rng, c.rows * c.group * c.head_dim);
      Floats want(q.size()), got(q.size());
      kernels.attention(call_of(c, cache, q, want));
      AttentionCall call = call_of(c, cache, q, got);
      const size_t each = c.rows * c.group * attention_state_floats(c.head_dim);
      Floats partial(call.segments() * each, std::numeric_limits<float>::quiet_NaN());
      for (const Kernels& k : {kernels, ref_kernels()}) {  // states of either can be merged by either
        for (uint32_t s = call.segments(); s-- > 0;) {
          AttentionCall part = call;
          part.partial = partial.data() + s * each;
          part.segment_begin = s;
          part.segment_end = s + 1;
          (s % 2 == 0 ? kernels : k).attention(part);
        }
        call.partial = partial.data();
        call.segment_begin = 0;
        call.segment_end = call.segments();
        k.merge_attention(call);
        EXPECT_TRUE(same_bits(want, got)) << k.name << " head_dim " << c.head_dim << " position " << c.position;
      }
    }
  });
}

TEST(AttentionTest, BitsDoNotDependOnHowThePromptIsCut) {
  const AttentionCase whole{KvFormat::kF16, 32, 4, 0, 600, 0, 0};
  Rng rng(4);
  const Kernels kernels = best_kernels();
  const Cache cache = make_cache(rng, whole, kernels);
  const Floats q = random_floats(rng, whole.rows * whole.group * whole.head_dim);
  Floats want(q.size()), got(q.size());
  kernels.attention(call_of(whole, cache, q, want));
  for (uint32_t begin = 0; begin < whole.rows;) {
    AttentionCall call = call_of(whole, cache, q, got);
    const uint32_t rows = std::min<uint32_t>(whole.rows - begin, 1 + begin % 7);
    call.q += begin * call.q_stride;
    call.out += begin * call.out_stride;
    call.position = begin;
    call.rows = rows;
    kernels.attention(call);
    begin += rows;
  }
  EXPECT_TRUE(same_bits(want, got));
}

}  // namespace
}  // namespace shoal
