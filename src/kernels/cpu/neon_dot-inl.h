// Products of int8 on 64-bit Arm: with SDOT (Armv8.2 dot products, nearly every CPU since 2018) and without. Highway has no
// operation for it, and no target of its own: the NEON code holds both and takes SDOT where the system reports it.
#if defined(SHOAL_KERNELS_CPU_NEON_DOT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SHOAL_KERNELS_CPU_NEON_DOT_INL_H_
#undef SHOAL_KERNELS_CPU_NEON_DOT_INL_H_
#else
#define SHOAL_KERNELS_CPU_NEON_DOT_INL_H_
#endif

#include "kernels/cpu/lanes-inl.h"

#if HWY_TARGET == HWY_NEON
#include <arm_neon.h>
#include <sys/auxv.h>

HWY_BEFORE_NAMESPACE();
namespace shoal {
namespace HWY_NAMESPACE {

inline bool has_dot_products() {
  constexpr unsigned long kHwcapDotProducts = 1ul << 20;  // HWCAP_ASIMDDP of the Linux ABI
  return (getauxval(AT_HWCAP) & kHwcapDotProducts) != 0;
}

// dot[i] + sum of codes[4 i + j] * x[4 i + j] over j, all int8.
struct WithoutSdot {
  static HWY_INLINE int32x4_t add(int32x4_t dot, int8x16_t codes, int8x16_t x) {
    const int16x8_t low = vmull_s8(vget_low_s8(codes), vget_low_s8(x)), high = vmull_high_s8(codes, x);
    return vpadalq_s16(dot, vpaddq_s16(low, high));  // two products fit 16 bits: x is within +-127
  }
};
struct WithSdot {
  static HWY_INLINE int32x4_t add(int32x4_t dot, int8x16_t codes, int8x16_t x) {
    // The compiler may not use what the assembler is told it may.
    asm(".arch armv8.2-a+crypto+dotprod\n\tsdot %0.4s, %1.16b, %2.16b" : "+w"(dot) : "w"(codes), "w"(x));
    return dot;
  }
};

}  // namespace HWY_NAMESPACE
}  // namespace shoal
HWY_AFTER_NAMESPACE();
#endif  // HWY_NEON

#endif  // include guard
