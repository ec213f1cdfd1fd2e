// K or V of one head in a KV block, read as 16 numbers at a time: one class per KvFormat (kernels.h has the layouts); or widened
// to f32; or asked for ahead.
#if defined(SHOAL_KERNELS_CPU_KV_LINES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SHOAL_KERNELS_CPU_KV_LINES_INL_H_
#undef SHOAL_KERNELS_CPU_KV_LINES_INL_H_
#else
#define SHOAL_KERNELS_CPU_KV_LINES_INL_H_
#endif

#include "kernels/cpu/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace shoal {
namespace HWY_NAMESPACE {
#if !SHOAL_PORTABLE_TARGET

template <typename T>  // float, hwy::float16_t or hwy::bfloat16_t
class PlainLines {
 public:
  static constexpr bool kInPlace = sizeof(T) == sizeof(float);  // nothing to widen
  struct NoScale {};

  PlainLines() = default;
  HWY_INLINE PlainLines(const std::byte* at, uint32_t channels) : at_(reinterpret_cast<const T*>(at)), channels_(channels) {}
  HWY_INLINE PlainLines(const T* at, uint32_t channels) : at_(at), channels_(channels) {}

  // What the keys of channels [d, d + kKvQuantBlock) are multiplied with.
  HWY_INLINE NoScale key_scale(uint32_t) const { return {}; }
  // Channel d of the 16 tokens.
  HWY_INLINE F16x key(size_t d, NoScale) const { return load(at_ + d * kKvTokens); }
  // Channels [d, d + 16) of token t.
  HWY_INLINE F16x value(size_t t, size_t d) const { return load(at_ + t * channels_ + d); }

 private:
  const T* at_ = nullptr;
  size_t channels_ = 0;
};
using FloatLines = PlainLines<float>;

// Values of a block as f32: [channels / kChannels][16 tokens][kChannels], so that what is used together lies together.
class WidenedValues {
 public:
  static constexpr uint32_t kChannels = 64;

  WidenedValues() = default;
  HWY_INLINE explicit WidenedValues(float* at) : at_(at) {}
  HWY_INLINE F16x value(size_t t, size_t d) const { return load(place(t, d)); }
  HWY_INLINE float* place(size_t t, size_t d) const { return at_ + d / kChannels * (kKvTokens * kChannels) + d % kChannels + t * kChannels; }

 private:
  float* at_ = nullptr;
};
static_assert(kHeadDimMax % WidenedValues::kChannels == 0);

// KvFormat::kQ8_0.
class CodedLines {
 public:
  static constexpr bool kInPlace = false;

  HWY_INLINE CodedLines(const std::byte* at, uint32_t channels) : at_(reinterpret_cast<const int8_t*>(at)), channels_(channels) {
    const auto* halves = reinterpret_cast<const hwy::float16_t*>(at + size_t{channels} * kKvTokens);
    for (uint32_t i = 0; i < channels / kKvQuantBlock * kKvTokens; i += 16) store(load(halves + i), scales_ + i);
  }

  HWY_INLINE F16x key_scale(uint32_t d) const { return load(scales_ + d / kKvQuantBlock * kKvTokens); }
  HWY_INLINE F16x key(size_t d, const F16x& scale) const { return codes(at_ + d * kKvTokens) * scale; }
  HWY_INLINE F16x value(size_t t, size_t d) const {
    return codes(at_ + t * channels_ + d) * set1(scales_[d / kKvQuantBlock * kKvTokens + t]);
  }

 private:
  static HWY_INLINE F16x codes(const int8_t* p) {
    const hn::Rebind<int8_t, DF> d8;
    F16x y;
    SHOAL_LANES(i) y.r[i] = hn::ConvertTo(kDF, hn::PromoteTo(kDI, hn::LoadU(d8, p + i * kLanes)));
    return y;
  }

  const int8_t* at_;
  uint32_t channels_;
  alignas(64) float scales_[kHeadDimMax / kKvQuantBlock * kKvTokens];  // [block of channels][token]
};

// K and V of the blocks after these, asked for a little at a time while these are computed with: the blocks lie apart,
// so no hardware sees what comes next, and asked for all at once they would wait for each other.
class Ahead {
 public:
  Ahead(const AttentionCall& call, std::byte* const* blocks, uint32_t count, bool near)
      : blocks_(blocks), count_(count), near_(near), key_offset_(call.key_offset), value_offset_(call.compressed ? call.key_offset : call.value_offset),
        bytes_(kv_head_bytes(call.format, call.head_dim)) {}
  HWY_INLINE void some() {
    for (const size_t end = std::min(bytes_, at_ + kBytes); at_ < end; at_ += 64) {
      for (uint32_t b = 0; b < count_; ++b) {
        ask(blocks_[b] + key_offset_ + at_);
        ask(blocks_[b] + value_offset_ + at_);
      }
    }
  }

 private:
  HWY_INLINE void ask(const std::byte* at) const {
    if (near_) __builtin_prefetch(at, 0, 3);
    else __builtin_prefetch(at, 0, 2);
  }

  static constexpr size_t kBytes = 4 * 64;
  std::byte* const* blocks_;
  uint32_t count_;
  bool near_;  // into the first cache, or the second
  size_t key_offset_, value_offset_, bytes_, at_ = 0;
};

// Widens K and V of a block, K into [head_dim][16].
template <typename Lines>
void widen(const Lines& key, const Lines& value, uint32_t head_dim, uint32_t padded, float* key_out, const WidenedValues& value_out) {
  for (uint32_t first = 0; first < head_dim; first += kKvQuantBlock) {
    const auto scale = key.key_scale(first);
    for (uint32_t d = first; d < std::min(first + kKvQuantBlock, head_dim); ++d) store(key.key(d, scale), key_out + d * 16);
  }
  for (uint32_t t = 0; t < kKvTokens; ++t) {
    for (uint32_t d = 0; d < padded; d += 16) store(value.value(t, d), value_out.place(t, d));
  }
}

// out[t * stride + d] = in[d * 16 + t] for d, t < 16, and stride a multiple of 16. Interleaving vectors by four moves two bits of an element's place
// from the front to the end; twice, and d (4 bits) has changed places with t.
HWY_INLINE void turn_lines(const float* in, float* out, size_t stride) {
  constexpr size_t kOf4 = 4 * kLanes;  // elements that an interleaving writes
  alignas(64) float half[256];
  for (size_t low = 0; low < 4; ++low) {  // the rows low, low + 4, low + 8 and low + 12, into [t][row / 4]
    SHOAL_LANES(i) {
      const float* const from = in + 16 * low + i * kLanes;
      hn::StoreInterleaved4(hn::LoadU(kDF, from), hn::LoadU(kDF, from + 64), hn::LoadU(kDF, from + 128), hn::LoadU(kDF, from + 192), kDF, half + 64 * low + i * kOf4);
    }
  }
  alignas(64) float turned[64];
  for (size_t high = 0; high < 4; ++high) {  // tokens 4 high to 4 high + 3
    SHOAL_LANES(i) {
      const float* const from = half + 16 * high + i * kLanes;
      hn::StoreInterleaved4(hn::LoadU(kDF, from), hn::LoadU(kDF, from + 64), hn::LoadU(kDF, from + 128), hn::LoadU(kDF, from + 192), kDF, turned + i * kOf4);
    }
    for (size_t t = 0; t < 4; ++t) store(load(turned + 16 * t), out + (4 * high + t) * stride);
  }
}

// Of compressed KV: the values are the first channels of the keys, turned.
template <typename Lines>
void widen_compressed(const Lines& key, uint32_t head_dim, uint32_t value_dim, uint32_t padded, float* key_out, const WidenedValues& value_out) {
  for (uint32_t first = 0; first < head_dim; first += kKvQuantBlock) {
    const auto scale = key.key_scale(first);
    for (uint32_t d = first; d < std::min(first + kKvQuantBlock, head_dim); ++d) store(key.key(d, scale), key_out + d * 16);
  }
  uint32_t d = 0;
  for (; d + 16 <= value_dim; d += 16) turn_lines(key_out + size_t{d} * 16, value_out.place(0, d), WidenedValues::kChannels);
  for (; d < padded; ++d) {
    for (uint32_t t = 0; t < kKvTokens; ++t) *value_out.place(t, d) = d < value_dim ? key_out[d * 16 + t] : 0.0f;
  }
}

#endif  // !SHOAL_PORTABLE_TARGET
}  // namespace HWY_NAMESPACE
}  // namespace shoal
HWY_AFTER_NAMESPACE();

#endif  // include guard
