// K or V of one head in a KV block, read as 16 numbers at a time: one class per KvFormat (kernels.h has the layouts).
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

  HWY_INLINE PlainLines(const std::byte* at, uint32_t channels) : at_(reinterpret_cast<const T*>(at)), channels_(channels) {}
  HWY_INLINE PlainLines(const T* at, uint32_t channels) : at_(at), channels_(channels) {}

  // What the keys of channels [d, d + kKvQuantBlock) are multiplied with.
  HWY_INLINE NoScale key_scale(uint32_t) const { return {}; }
  // Channel d of the 16 tokens.
  HWY_INLINE F16x key(uint32_t d, NoScale) const { return load(at_ + size_t{d} * kKvTokens); }
  // Channels [d, d + 16) of token t.
  HWY_INLINE F16x value(uint32_t t, uint32_t d) const { return load(at_ + size_t{t} * channels_ + d); }

 private:
  const T* at_;
  uint32_t channels_;
};
using FloatLines = PlainLines<float>;

// KvFormat::kQ8_0.
class CodedLines {
 public:
  static constexpr bool kInPlace = false;

  HWY_INLINE CodedLines(const std::byte* at, uint32_t channels) : at_(reinterpret_cast<const int8_t*>(at)), channels_(channels) {
    const auto* halves = reinterpret_cast<const hwy::float16_t*>(at + size_t{channels} * kKvTokens);
    for (uint32_t i = 0; i < channels / kKvQuantBlock * kKvTokens; i += 16) store(load(halves + i), scales_ + i);
  }

  HWY_INLINE F16x key_scale(uint32_t d) const { return load(scales_ + d / kKvQuantBlock * kKvTokens); }
  HWY_INLINE F16x key(uint32_t d, const F16x& scale) const { return codes(at_ + size_t{d} * kKvTokens) * scale; }
  HWY_INLINE F16x value(uint32_t t, uint32_t d) const {
    return codes(at_ + size_t{t} * channels_ + d) * set1(scales_[d / kKvQuantBlock * kKvTokens + t]);
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

#endif  // !SHOAL_PORTABLE_TARGET
}  // namespace HWY_NAMESPACE
}  // namespace shoal
HWY_AFTER_NAMESPACE();

#endif  // include guard
