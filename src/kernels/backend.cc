#include "kernels/cpu/targets.h"

#include "hwy/highway.h"
#include "kernels/cpu/backend.h"
#include "kernels/kernels.h"
#include "kernels/ref/ref.h"

namespace shoal {
const Kernels& ref_kernels() {
  static constexpr Kernels kKernels = {
      "scalar",       &ref::linear,   &ref::linear, false, &ref::quantize_row, &ref::rms_norm, &ref::layer_norm,
      &ref::add,      &ref::scale,    &ref::add_scaled,
      &ref::silu_mul, &ref::gelu_mul, &ref::gelu_erf_mul, &ref::clamped_mul, &ref::sigmoid_mul, &ref::mul, &ref::square_positive,
      &ref::softcap,  &ref::rope, &ref::store_kv, &ref::attention, &ref::merge_attention, &ref::convolve, &ref::scan, &ref::index_scores,
  };
  return kKernels;
}

Kernels best_kernels() {
  const std::vector<int64_t> targets = simd_targets();
  if (targets.empty()) return ref_kernels();
  Kernels kernels{};
  kernels.name = hwy::TargetName(targets.front() & -targets.front());
  kernels.float_linear = chosen_float_linear();
  const QuantizedLinear quantized = chosen_quantized_linear();
  kernels.quantized_linear = quantized.function;
  kernels.quant_pairs = quantized.pairs;
  const AttentionFunctions attention = chosen_attention();
  kernels.attention = attention.attention;
  kernels.merge_attention = attention.merge;
  kernels.store_kv = attention.store_kv;
  const RecurrenceFunctions recurrence = chosen_recurrence();
  kernels.convolve = recurrence.convolve;
  kernels.scan = recurrence.scan;
  kernels.index_scores = chosen_index_scores();
  choose_elementwise(kernels);
  return kernels;
}

std::vector<int64_t> simd_targets() {
  std::vector<int64_t> targets;
  const int64_t supported = hwy::SupportedTargets();
  // AVX3_DL is the AVX3 code with another multiplication (cpu/targets.h).
  if ((supported & HWY_AVX3_DL) && (supported & HWY_AVX3)) targets.push_back(HWY_AVX3_DL | HWY_AVX3);
  const int64_t compiled = supported & HWY_TARGETS & ~(HWY_SCALAR | HWY_EMU128);
  for (int64_t left = compiled; left != 0; left &= left - 1) targets.push_back(left & -left);
  return targets;
}

}  // namespace shoal
