#include "kernels/recurrence.h"

#include <cmath>

#include "kernels/ref/ref.h"
#include "kernels/test_backends.h"

namespace shoal {
namespace {

struct ScanCase {
  uint32_t key_dim, values, tokens;
  bool delta, by_key, begun;
};
constexpr ScanCase kScanCases[] = {
    {16, 16, 1, true, false, false}, {128, 64, 5, true, false, true}, {64, 40, 3, false, false, true}, {128, 64, 1, true, true, true},
    {32, 48, 9, true, true, false},  {16, 7, 4, false, false, false}, {128, 128, 2, false, false, true},
};

struct Scan {
  Floats from, state, q, k, v, decay, beta, out;
  ScanCall call;
};
Scan make_scan(const ScanCase& c, Rng& rng) {
  Scan s;
  const uint32_t width = (c.values + 15) / 16 * 16;
  s.from = random_floats(rng, c.key_dim * width);
  s.state.assign(s.from.size(), NAN);
  s.q = random_floats(rng, c.tokens * 200);
  s.k = random_floats(rng, c.tokens * 200, 0.2f);
  s.v = random_floats(rng, c.tokens * 200);
  s.decay = random_floats(rng, c.tokens * c.key_dim);
  for (float& d : s.decay) d = 0.5f + d / 2;
  s.beta = random_floats(rng, c.tokens);
  s.out.assign(c.tokens * 150, -7.0f);
  s.call = {.from = c.begun ? s.from.data() : nullptr, .state = s.state.data(), .width = width, .q = s.q.data(), .k = s.k.data(), .stride = 200,
            .v = s.v.data(), .v_stride = 200, .decay = s.decay.data(), .decay_stride = c.by_key ? c.key_dim : 1, .decay_by_key = c.by_key,
            .beta = c.delta ? s.beta.data() : nullptr, .beta_stride = 1, .out = s.out.data(), .out_stride = 150, .key_dim = c.key_dim,
            .values = c.values, .tokens = c.tokens};
  return s;
}

TEST(ScanTest, EveryBackendHasTheBitsOfTheOracle) {
  for_each_backend([](const Kernels& kernels) {
    for (const ScanCase& c : kScanCases) {
      Rng rng(c.key_dim + c.values), again(c.key_dim + c.values);
      const Scan want = make_scan(c, rng), got = make_scan(c, again);
      ref::scan(want.call);
      kernels.scan(got.call);
      EXPECT_TRUE(same_bits(want.out, got.out)) << c.key_dim << " " << c.values;
      EXPECT_TRUE(same_bits(want.state, got.state)) << c.key_dim << " " << c.values;
    }
  });
}

TEST(ScanTest, TokensMayBeCutAnywhere) {
  for_each_backend([](const Kernels& kernels) {
    for (const ScanCase& c : kScanCases) {
      Rng rng(3), again(3);
      const Scan want = make_scan(c, rng), got = make_scan(c, again);
      kernels.scan(want.call);
      ScanCall part = got.call;
      for (uint32_t t = 0; t < c.tokens; ++t) {  // one by one
        part.tokens = 1;
        kernels.scan(part);
        part.from = part.state;
        part.q += part.stride, part.k += part.stride, part.v += part.v_stride, part.out += part.out_stride, part.decay += part.decay_stride;
        if (part.beta != nullptr) ++part.beta;
      }
      EXPECT_TRUE(same_bits(want.out, got.out));
      EXPECT_TRUE(same_bits(want.state, got.state));
    }
  });
}

TEST(ScanTest, ATokenWhoseStateGoesToWholeLinesElsewhereHasTheSameBits) {
  for_each_backend([](const Kernels& kernels) {
    for (const uint32_t values : {16u, 40u, 64u, 128u}) {
      for (const bool delta : {false, true}) {
        const ScanCase c{.key_dim = 24, .values = values, .tokens = 1, .delta = delta, .by_key = false, .begun = true};
        Rng rng(values), again(values);
        const Scan want = make_scan(c, rng);
        Scan got = make_scan(c, again);
        const size_t count = got.state.size();
        Floats lines(count + 16, NAN);
        const size_t skip = (64 - reinterpret_cast<uintptr_t>(lines.data()) % 64) % 64 / sizeof(float);
        got.call.state = lines.data() + skip;
        ref::scan(want.call);
        kernels.scan(got.call);
        EXPECT_TRUE(same_bits(want.out, got.out)) << values;
        EXPECT_TRUE(same_bits(want.state, Floats(got.call.state, got.call.state + count))) << values;
        EXPECT_TRUE(same_bits(want.from, got.from)) << values;
      }
    }
  });
}

TEST(ScanTest, TheDeltaRuleReplacesWhatTheStateKnewOfAKey) {
  // A key of length 1, no decay, beta 1: the state then gives exactly the new value for it.
  Floats state(4 * 16, 0.0f), out(16), k = {0.6f, 0, 0.8f, 0}, v(16), one = {1.0f};
  for (float value : {2.0f, -5.0f}) {
    v.assign(16, value);
    ref::scan({.from = state.data(), .state = state.data(), .width = 16, .q = k.data(), .k = k.data(), .v = v.data(), .decay = one.data(),
               .beta = one.data(), .out = out.data(), .out_stride = 16, .key_dim = 4, .values = 16, .tokens = 1});
    for (const float o : out) EXPECT_NEAR(o, value, 1e-5);
  }
}

TEST(ConvolveTest, EveryBackendHasTheBitsOfTheOracleAndCutsDoNotShow) {
  for_each_backend([](const Kernels& kernels) {
    for (const uint32_t channels : {16u, 96u, 37u}) {
      for (const uint32_t taps : {3u, 4u}) {
        Rng rng(channels);
        const uint32_t tokens = 6;
        const Floats all = random_floats(rng, (taps - 1 + tokens) * channels), weight = random_floats(rng, taps * channels), bias = random_floats(rng, channels);
        Floats want(tokens * channels), got(want.size()), cut(want.size());
        ConvolveCall call{.x = all.data() + (taps - 1) * channels, .x_stride = channels, .tail = all.data(), .tail_stride = channels, .weight = weight.data(),
                          .weight_stride = channels, .bias = bias.data(), .out = want.data(), .out_stride = channels, .channels = channels, .taps = taps,
                          .tokens = tokens, .silu = channels != 96};
        ref::convolve(call);
        call.out = got.data();
        kernels.convolve(call);
        EXPECT_TRUE(same_bits(want, got)) << channels;
        for (uint32_t t = 0; t < tokens; ++t) {
          ConvolveCall one = call;
          one.tokens = 1;
          one.tail = all.data() + t * channels;
          one.x = call.x + t * channels;
          one.out = cut.data() + t * channels;
          kernels.convolve(one);
        }
        EXPECT_TRUE(same_bits(want, cut)) << channels;
      }
    }
  });
}

}  // namespace
}  // namespace shoal
