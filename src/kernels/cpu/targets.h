// Which Highway targets Shoal is compiled for: those with fused multiply-add and a fixed vector width (AVX2, AVX-512,
// NEON). Include before any Highway header. On x86-64 without AVX2, Highway picks its scalar fallback; there
// SHOAL_PORTABLE_TARGET holds and the tables point at the scalar oracle.
//
// VNNI is not a target of its own: Highway 1.0 compiles AVX3_DL for the VEX form, which the first CPUs with AVX-512 VNNI
// lack. The AVX3 code holds both multiplications and takes the VNNI one if Highway *detects* AVX3_DL; the AVX2 code holds that
// of AVX-VNNI (client CPUs without AVX-512) likewise.
#pragma once

#define HWY_DISABLED_TARGETS \
  (HWY_SSSE3 | HWY_SSE4 | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV | HWY_PPC8 | HWY_WASM | HWY_WASM_EMU256)
#define SHOAL_PORTABLE_TARGET (HWY_TARGET == HWY_SCALAR || HWY_TARGET == HWY_EMU128)
