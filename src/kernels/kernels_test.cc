// One table of cases per operation, run on every backend of this machine. Bits must equal those of the scalar oracle.
// Matrices: linear_test.cc. Caches: attention_test.cc.
#include "kernels/test_backends.h"

#include <cmath>
#include <cstring>
#include <limits>

#include "kernels/ref/math.h"
#include "kernels/ref/ref.h"

namespace shoal {
namespace {

// Error in units of the last place of the true value.
double ulps(float got, double want) {
  const int exponent = std::max(std::ilogb(want), -126);
  return std::fabs(static_cast<double>(got) - want) / std::ldexp(1.0, exponent - 23);
}

TEST(BackendTest, AMachineWithFmaHasSimdAndItsTargetsAreNamed) {
  for (int64_t target : simd_targets()) {
    hwy::SetSupportedTargetsForTest(target);
    EXPECT_STREQ(best_kernels().name, hwy::TargetName(target & -target));
    hwy::SetSupportedTargetsForTest(0);
  }
  EXPECT_STREQ(ref_kernels().name, "scalar");
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
      EXPECT_TRUE(same([&](const Kernels& k, Floats& v) { k.layer_norm(v.data(), y.data(), 1e-5f, n, v.data()); })) << n;
      EXPECT_TRUE(same([&](const Kernels& k, Floats& v) { k.layer_norm(x.data(), y.data(), 1e-5f, n, v.data()); })) << n;
      EXPECT_TRUE(same([&](const Kernels& k, Floats& v) { k.add(v.data(), y.data(), n); }));
      EXPECT_TRUE(same([&](const Kernels& k, Floats& v) { k.scale(v.data(), 0.3f, n); }));
      EXPECT_TRUE(same([&](const Kernels& k, Floats& v) { k.add_scaled(v.data(), 0.3f, y.data(), n); }));
      EXPECT_TRUE(same([&](const Kernels& k, Floats& v) { k.silu_mul(x.data(), y.data(), n, v.data()); }));
      EXPECT_TRUE(same([&](const Kernels& k, Floats& v) { k.gelu_mul(x.data(), y.data(), n, v.data()); }));
      EXPECT_TRUE(same([&](const Kernels& k, Floats& v) { k.gelu_erf_mul(x.data(), y.data(), n, v.data()); }));
      EXPECT_TRUE(same([&](const Kernels& k, Floats& v) { k.gelu_erf_mul(x.data(), nullptr, n, v.data()); }));
      EXPECT_TRUE(same([&](const Kernels& k, Floats& v) { k.clamped_mul(x.data(), y.data(), 1.702f, 0.7f, n, v.data()); }));
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
  std::vector<QuantBlock> want(quant_row_stride(320)), got(want.size());
  ref::quantize_row(x.data(), x.size(), want.data());
  for_each_backend([&](const Kernels& kernels) {
    kernels.quantize_row(x.data(), x.size(), got.data());
    for (size_t b = 0; b < 10; ++b) {
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

}  // namespace
}  // namespace shoal
