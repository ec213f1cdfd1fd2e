// KV caches and attention over them, on every backend: the bits of the scalar oracle.
#include "kernels/test_backends.h"

#include <cmath>
#include <limits>

#include "kernels/quant_codes.h"
#include "kernels/ref/ref.h"

namespace shoal {
namespace {

struct AttentionCase {
  KvFormat format;
  uint32_t head_dim, group, position, rows, window;
  float softcap;
  uint32_t value_dim = 0;  // 0: head_dim
  bool sinks = false;
  uint32_t chunk = 0;
  bool apart = false;      // V of a width of its own is stored; else it is compressed
  bool selected = false;   // of the tokens some are not seen

  bool compressed() const { return value_dim != 0 && !apart; }
  uint32_t values() const { return value_dim == 0 ? head_dim : value_dim; }
};
constexpr AttentionCase kAttentionCases[] = {
    {KvFormat::kF32, 16, 2, 0, 1, 0, 0},    {KvFormat::kF32, 40, 2, 0, 37, 0, 0},   {KvFormat::kF16, 64, 4, 15, 3, 0, 0},
    {KvFormat::kBF16, 128, 1, 31, 5, 0, 0}, {KvFormat::kF32, 32, 3, 5, 40, 16, 0},  {KvFormat::kF16, 32, 7, 70, 2, 33, 50},
    {KvFormat::kF16, 64, 8, 1100, 2, 0, 0}, {KvFormat::kF32, 16, 2, 500, 40, 0, 0}, {KvFormat::kF32, 16, 2, 1030, 4, 520, 30},
    {KvFormat::kBF16, 256, 2, 20, 9, 0, 0}, {KvFormat::kQ8_0, 64, 4, 0, 37, 0, 0},  {KvFormat::kQ8_0, 40, 2, 90, 30, 0, 0},
    {KvFormat::kQ8_0, 128, 8, 1100, 1, 0, 0}, {KvFormat::kQ8_0, 96, 1, 700, 3, 550, 20}, {KvFormat::kF16, 128, 1, 60, 70, 0, 0},
    {KvFormat::kF16, 80, 11, 47, 3, 0, 0},
    {KvFormat::kF32, 40, 4, 0, 37, 0, 0, 32},     {KvFormat::kF16, 576, 16, 1100, 2, 0, 0, 512}, {KvFormat::kBF16, 72, 3, 30, 20, 0, 0, 56},
    {KvFormat::kQ8_0, 576, 5, 60, 7, 0, 0, 512},  {KvFormat::kF32, 288, 2, 700, 3, 0, 0, 250},
    {KvFormat::kF32, 32, 4, 0, 37, 16, 0, 0, true}, {KvFormat::kF16, 64, 8, 1100, 2, 0, 0, 0, true},
    {KvFormat::kF32, 32, 2, 0, 70, 0, 0, 0, false, 24}, {KvFormat::kF16, 64, 4, 1020, 20, 0, 0, 0, false, 520},
    {KvFormat::kF32, 24, 4, 0, 37, 0, 0, 16, false, 0, true}, {KvFormat::kF16, 192, 16, 1100, 2, 0, 0, 128, true, 0, true},
    {KvFormat::kF32, 72, 3, 0, 150, 0, 0, 56, false, 0, false, true}, {KvFormat::kF16, 576, 16, 1100, 3, 0, 0, 512, false, 0, false, true},
    {KvFormat::kBF16, 64, 4, 90, 20, 40, 0, 0, true, 0, false, true},
    {KvFormat::kQ8_0, 40, 3, 60, 70, 0, 0, 72, false, 0, true}, {KvFormat::kBF16, 16, 2, 30, 20, 16, 0, 40, true, 0, true},
};

// Whether a row sees a token: some blocks of it are not seen at all, its own token always.
bool is_selected(uint32_t row, uint32_t position, uint32_t token) { return token == position || ((token / 16 + row) % 3 != 0 && (token * 7 + row) % 5 < 3); }

// Rows of words.
std::vector<uint16_t> selection(const AttentionCase& c) {
  const uint32_t words = (c.position + c.rows + 15) / 16;
  std::vector<uint16_t> bits(size_t{words} * c.rows, c.selected ? 0 : 0xffff);
  for (uint32_t row = 0; row < c.rows && c.selected; ++row) {
    for (uint32_t t = 0; t <= c.position + row; ++t) bits[row * words + t / 16] |= static_cast<uint16_t>(is_selected(row, c.position + row, t) << (t % 16));
  }
  return bits;
}

constexpr float kSinks[8] = {0.5f, -3.0f, 20.0f, 0.0f, 1.0f, 2.0f, -90.0f, 4.0f};

// A KV cache with `tokens` tokens of random numbers; every slot that was not written is NaN.
struct Cache {
  std::vector<std::vector<std::byte>> blocks;
  std::vector<std::byte*> pointers;
  std::vector<uint16_t> selected;
};
Cache make_cache(Rng& rng, const AttentionCase& c, const Kernels& kernels) {
  const uint32_t tokens = c.position + c.rows;
  const size_t key_bytes = kv_head_bytes(c.format, c.head_dim), value_bytes = kv_head_bytes(c.format, c.values());
  Cache cache;
  cache.selected = selection(c);
  for (uint32_t b = 0; b <= (tokens - 1) / kKvTokens; ++b) cache.blocks.emplace_back(key_bytes + value_bytes, std::byte{0xff});
  for (auto& block : cache.blocks) cache.pointers.push_back(block.data());
  for (uint32_t t = 0; t < tokens; ++t) {
    const Floats k = random_floats(rng, c.head_dim, 2), v = random_floats(rng, c.values());
    if (c.window != 0 && t + c.window + 16 < c.position) continue;  // long out of every window: never written here
    std::byte* block = cache.pointers[t / kKvTokens];
    kernels.store_kv({k.data(), c.compressed() ? nullptr : v.data(), block, block + key_bytes, 0, 0, t % kKvTokens, 1, c.head_dim, c.values(), c.format});
  }
  return cache;
}

AttentionCall call_of(const AttentionCase& c, const Cache& cache, const Floats& q, Floats& out) {
  AttentionCall call;
  if (c.selected) call.selected = {cache.selected.data(), (c.position + c.rows + 15) / 16};
  call.q = q.data();
  call.out = out.data();
  call.q_stride = c.group * c.head_dim;
  call.out_stride = c.group * c.values();
  call.value_dim = c.values();
  call.compressed = c.compressed();
  call.blocks = cache.pointers.data();
  call.value_offset = kv_head_bytes(c.format, c.head_dim);
  call.format = c.format;
  call.head_dim = c.head_dim;
  call.group = c.group;
  call.rows = c.rows;
  call.position = c.position;
  call.window = c.window;
  call.chunk = c.chunk;
  call.scale = 1.0f / std::sqrt(static_cast<float>(c.head_dim));
  call.softcap = c.softcap;
  if (c.sinks) call.sinks = kSinks;
  return call;
}

// The number that a cache holds for a channel of a token.
double stored_number(const AttentionCase& c, const Cache& cache, bool of_value, uint32_t token, uint32_t channel) {
  const uint32_t channels = kv_channels(c.format, of_value ? c.values() : c.head_dim), slot = token % kKvTokens;
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
    ref::store_kv({k.data(), k.data(), cache.pointers[0], cache.pointers[0] + kv_head_bytes(c.format, 32), 0, 0, 0, 1, 32, 32, c.format});
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
      Floats want(c.rows * c.group * c.values()), got(want.size());
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
    Floats got(c.rows * c.group * c.values());
    const AttentionCall call = call_of(c, cache, q, got);
    best_kernels().attention(call);
    const uint32_t row = c.rows - 1, position = c.position + row;
    uint32_t from = c.window != 0 && position + 1 > c.window ? position + 1 - c.window : 0;
    if (c.chunk != 0) from = position / c.chunk * c.chunk;
    std::vector<double> o(c.values(), 0.0);
    double denominator = c.sinks ? std::exp(double{kSinks[0]}) : 0;  // of head 0
    for (uint32_t t = from; t <= position; ++t) {
      if (c.selected && !is_selected(row, position, t)) continue;
      double s = 0;
      for (uint32_t d = 0; d < c.head_dim; ++d) s += q[row * call.q_stride + d] * stored_number(c, cache, false, t, d);
      s *= call.scale;
      if (c.softcap > 0) s = c.softcap * std::tanh(s / c.softcap);
      const double p = std::exp(s);
      denominator += p;
      for (uint32_t d = 0; d < c.values(); ++d) o[d] += p * stored_number(c, cache, !c.compressed(), t, d);
    }
    for (uint32_t d = 0; d < c.values(); ++d) ASSERT_NEAR(got[row * call.out_stride + d], o[d] / denominator, 4e-6) << d;
  }
}

TEST(AttentionTest, SegmentsComputedApartAndMergedHaveTheBitsOfTheWhole) {
  for_each_backend([](const Kernels& kernels) {
    for (const AttentionCase& c : kAttentionCases) {
      Rng rng(13);
      const Cache cache = make_cache(rng, c, kernels);
      const Floats q = random_floats(rng, c.rows * c.group * c.head_dim);
      Floats want(c.rows * c.group * c.values()), got(want.size());
      kernels.attention(call_of(c, cache, q, want));
      AttentionCall call = call_of(c, cache, q, got);
      const size_t each = c.rows * c.group * attention_state_floats(c.values());
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
