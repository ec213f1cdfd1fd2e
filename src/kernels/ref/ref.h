// The scalar oracle, one function per entry of Kernels (kernels.h).
#pragma once

#include "kernels/kernels.h"

namespace shoal::ref {

void linear(const LinearCall& call, size_t panel_begin, size_t panel_end);
void quantize_row(const float* x, size_t columns, QuantBlock* out);
void rms_norm(const float* x, const float* weight, float eps, size_t n, float* out);
void layer_norm(const float* x, const float* weight, float eps, size_t n, float* out);
void add(float* x, const float* y, size_t n);
void scale(float* x, float factor, size_t n);
void add_scaled(float* x, float factor, const float* y, size_t n);
void silu_mul(const float* gate, const float* up, size_t n, float* out);
void gelu_mul(const float* gate, const float* up, size_t n, float* out);
void gelu_erf_mul(const float* gate, const float* up, size_t n, float* out);
void clamped_mul(const float* gate, const float* up, float alpha, float limit, size_t n, float* out);
void sigmoid_mul(const float* gate, const float* up, size_t n, float* out);
void mul(const float* x, const float* y, size_t n, float* out);
void square_positive(const float* x, size_t n, float* out);
void softcap(float* x, float cap, size_t n);
void rope(const RopeCall& call);
void store_kv(const StoreKvCall& call);
void attention(const AttentionCall& call);
void merge_attention(const AttentionCall& call);
void convolve(const ConvolveCall& call);
void scan(const ScanCall& call);
void index_scores(const IndexScoresCall& call);

// Sum of 16 lanes in the fixed tree of kernels.h. Overwrites them.
inline float tree_sum(float* lanes) {
  for (int width = 8; width >= 1; width /= 2) {
    for (int i = 0; i < width; ++i) lanes[i] += lanes[i + width];
  }
  return lanes[0];
}

}  // namespace shoal::ref
