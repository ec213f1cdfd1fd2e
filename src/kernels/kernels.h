// One backend of the CPU kernels: a table of plain functions, each for a part of an operation's outputs. ops.h spreads
// them over threads. Every backend computes the same bits: the order of each sum is part of the contract below, and the
// tests compare bits, not tolerances.
//
// "16 lanes" means: element i of a row goes to lane i mod 16, each lane sums its elements in ascending order with FMA,
// and the lanes are added as a fixed tree: (i, i + 8), (i, i + 4), (i, i + 2), (i, i + 1).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/packed.h"
#include "kernels/recurrence.h"
#include "kernels/token_index.h"

namespace shoal {

enum class KvFormat : uint8_t { kF32, kF16, kBF16, kQ8_0 };

constexpr uint32_t kKvTokens = 16;            // tokens of a KV block
constexpr uint32_t kSegmentBlocks = 32;       // blocks of one attention segment: 512 tokens
constexpr uint32_t kHeadDimMax = 640;          // of keys
constexpr uint32_t kKvQuantBlock = 32;        // channels that share a scale in KvFormat::kQ8_0
constexpr uint32_t round_up_lanes(uint32_t n) { return (n + 15) / 16 * 16; }

// Channels of a head as stored: whole lanes, or whole blocks of kQ8_0. Heads of any width can be stored in any format.
constexpr uint32_t kv_channels(KvFormat format, uint32_t head_dim) {
  return format == KvFormat::kQ8_0 ? (head_dim + kKvQuantBlock - 1) / kKvQuantBlock * kKvQuantBlock : round_up_lanes(head_dim);
}
// Bytes of K (and of V) of one head in a block.
constexpr size_t kv_head_bytes(KvFormat format, uint32_t head_dim) {
  const size_t channels = kv_channels(format, head_dim);
  if (format == KvFormat::kQ8_0) return channels * kKvTokens + channels / kKvQuantBlock * kKvTokens * 2;
  return channels * kKvTokens * (format == KvFormat::kF32 ? 4 : 2);
}

// y[m] = W x[m] + bias for rows m of activations and panels [panel_begin, panel_end) of W.
// Order: per chunk (one chunk if chunk_unit is 0) from 0.0f along K ascending:
//   floats     acc = fma(w, x, acc) per column
//   quantised  per 32 columns: acc = fma(float(dot), w_scale * x_scale, acc); formats with a scale per 16 columns do so
//              per 16; formats with a min then do acc = fma(-(min * x_scale), float(sum of codes), acc)
// then the chunk sums c0..c7 as ((c0 + c1) + (c2 + c3)) + ((c4 + c5) + (c6 + c7)), then + bias; if `add`, y[m] += that.
struct LinearCall {
  PackedMatrix weight;
  size_t rows = 0;                       // m
  const float* x = nullptr;              // [m][x_stride] f32, for float formats
  size_t x_stride = 0;
  const QuantBlock* quantized = nullptr; // [m][quant_row_stride(columns)], for quantised formats
  float* out = nullptr;                  // [m][out_stride] f32, column = output row of W
  size_t out_stride = 0;
  bool add = false;                      // to what is in `out`: a residual
  std::span<std::byte> stage;            // memory of the calling thread to work in, aligned to 64; the more, up to
                                         // ThreadPool::kScratchBytes, the faster, and none is correct
};

// Rotary embedding of one row of heads in place, [heads][head_dim]; the first 2 * half dimensions of each head turn.
// (a, b) -> (fma(a, cos, -(b * sin)), fma(b, cos, a * sin)); pairs are (i, i + half), or (2i, 2i + 1) if interleaved.
struct RopeCall {
  float* x = nullptr;
  uint32_t heads = 0, head_dim = 0, half = 0;
  const float* cos = nullptr;  // [half]
  const float* sin = nullptr;
  bool interleaved = false;
};

// Writes one token's K and V of one layer into its block; rounds to nearest even.
// Compressed KV (AttentionCall) has no V of its own: v and value are null, and V is the first channels of K.
// In a block, head h of a layer has K [head_dim][16 tokens] at key_offset + h * key_bytes and V [16 tokens][kv_channels]
// at value_offset + h * value_bytes; V's padding is written as zero.
// kQ8_0: int8 codes in these places (K of kv_channels), then f16 scales [kv_channels / 32][16 tokens]; a number is
// code * scale, which is exact in f32. scale = f16(amax / 127) of the 32 channels of a token, at most 65504;
// code = nearest-even(x * (1 / scale)) within +-127, 0 if the scale is 0.
struct StoreKvCall {
  const float* k = nullptr;  // [kv_heads][head_dim]
  const float* v = nullptr;  // [kv_heads][value_dim]
  std::byte* key = nullptr;    // K of head 0 of this layer in the token's block
  std::byte* value = nullptr;  // V likewise
  size_t key_bytes = 0, value_bytes = 0;  // from one head to the next
  uint32_t slot = 0;           // token's place in the block
  uint32_t kv_heads = 0, head_dim = 0, value_dim = 0;
  KvFormat format = KvFormat::kF32;
};

// Attention of consecutive query rows of one sequence to one KV head, with the `group` query heads that share it.
// Order, per (row, query head): blocks in ascending position, in segments of kSegmentBlocks (by absolute position) that
// are merged in ascending order. Within a block, per token t: s = fma along head_dim ascending, * scale, soft cap
// cap * tanh(s / cap); then m' = max(m, max s), c = exp(m - m'), p = exp(s - m'), l[t] = fma(l[t], c, p) in 16 lanes,
// o = o * c, o = fma(p, v, o) for tokens ascending. Merge of segments: a = exp(M - M'), c = exp(m - M'),
// L = fma(l, c, L * a), O likewise. Result: O * (1 / tree(L)); with a sink s, a score without a value, M' = max(M, s),
// c = exp(M - M'): O * (c / fma(tree(L), c, exp(s - M'))). Tokens out of a row's range are never read as numbers.
//
// A long context can be split between threads: with `partial`, only segments [segment_begin, segment_end) are computed, and
// their states are written there instead of results; merge_attention makes the results of all of them, in the same bits.
struct AttentionCall {
  const float* q = nullptr;  // row r, head g: q + r * q_stride + g * head_dim
  size_t q_stride = 0;
  float* out = nullptr;      // row r, head g: out + r * out_stride + g * value_dim
  size_t out_stride = 0;
  std::byte* const* blocks = nullptr;  // KV blocks of the sequence
  size_t key_offset = 0, value_offset = 0;  // of this KV head in every block
  KvFormat format = KvFormat::kF32;
  uint32_t head_dim = 0;  // at most kHeadDimMax
  uint32_t value_dim = 0; // of V and of results; at most kHeadDimMax
  bool compressed = false; // V of a token is the first value_dim channels of its K (multi-head latent attention, arXiv 2405.04434,
                           // section 2.1, with absorbed projections)
  uint32_t group = 1;
  uint32_t rows = 0;
  uint32_t position = 0;  // of the first row; a row sees tokens [max(0, pos - window + 1), pos]
  uint32_t window = 0;    // 0: everything
  uint32_t chunk = 0;     // instead of a window: a row sees tokens [pos - pos mod chunk, pos]; 0: none
  uint32_t ahead = 0;     // ... and so many tokens after pos, as far as there are `length`: attention of encoders. 0: causal
  uint32_t length = 0;    // tokens of the sequence, all of them stored; with `ahead` only
  float scale = 1;
  float softcap = 0;      // 0: none
  const float* sinks = nullptr;  // [group], or none
  // Which of them a row sees beside that: bit t of word b of row r is token 16 b + t; null: all. A token that is not seen has the weight 0
  // in its block; a block of which none is seen is passed over.
  struct {
    const uint16_t* words = nullptr;
    size_t stride = 0;
    const uint16_t* of(uint32_t row) const { return words == nullptr ? nullptr : words + row * stride; }
  } selected;
  uint32_t segment_begin = 0, segment_end = 0;
  float* partial = nullptr;  // [segment_end - segment_begin][rows * group][attention_state_floats(value_dim)]

  uint32_t first_seen(uint32_t pos) const {
    if (chunk != 0) return pos - pos % chunk;
    return window != 0 && pos + 1 > window ? pos + 1 - window : 0;
  }
  uint32_t last_seen(uint32_t pos) const { return ahead == 0 || length <= pos + 1 ? pos : pos + (ahead < length - 1 - pos ? ahead : length - 1 - pos); }
  uint32_t segments() const { return last_seen(position + rows - 1) / (kKvTokens * kSegmentBlocks) + 1; }  // that its rows reach
};
// The state of one (row, query head) in a segment: maximum, 1 if any token was seen else 0, nothing up to 16; l[16];
// o[padded values].
constexpr size_t attention_state_floats(uint32_t values) { return 32 + round_up_lanes(values); }

struct Kernels {
  const char* name;
  void (*float_linear)(const LinearCall&, size_t panel_begin, size_t panel_end);
  void (*quantized_linear)(const LinearCall&, size_t panel_begin, size_t panel_end);
  bool quant_pairs;  // quantized_linear reads the codes in pairs, see quant_row_stride()
  // Per block of 32: scale = amax / 127, q = nearest-even(x * (127 / amax)), all zero if amax is 0. columns % 32 == 0. `out` has
  // room for a row; its second half is written if `quant_pairs`.
  void (*quantize_row)(const float* x, size_t columns, QuantBlock* out);
  // out = (x * (1 / sqrt(sum(x^2) / n + eps))) * weight, the sum in 16 lanes. May be in place.
  void (*rms_norm)(const float* x, const float* weight, float eps, size_t n, float* out);
  // mean = sum(x) / n, d = x - mean, out = (d * (1 / sqrt(sum(d^2) / n + eps))) * weight, both sums in 16 lanes. May be in place.
  void (*layer_norm)(const float* x, const float* weight, float eps, size_t n, float* out);
  void (*add)(float* x, const float* y, size_t n);                                // x += y
  void (*scale)(float* x, float factor, size_t n);                                // x *= factor
  void (*add_scaled)(float* x, float factor, const float* y, size_t n);           // x = fma(factor, y, x)
  void (*silu_mul)(const float* gate, const float* up, size_t n, float* out);     // gate / (1 + exp(-gate)) * up
  void (*gelu_mul)(const float* gate, const float* up, size_t n, float* out);     // tanh form of GELU(gate) * up
  void (*gelu_erf_mul)(const float* gate, const float* up, size_t n, float* out); // GELU by the error function, times up; up null: times 1
  // g = min(gate, limit), u = min(max(up, -limit), limit): g / (1 + exp(-(alpha * g))) * (u + 1)
  void (*clamped_mul)(const float* gate, const float* up, float alpha, float limit, size_t n, float* out);
  void (*sigmoid_mul)(const float* gate, const float* up, size_t n, float* out);  // up / (1 + exp(-gate))
  void (*mul)(const float* x, const float* y, size_t n, float* out);              // x * y
  void (*square_positive)(const float* x, size_t n, float* out);                  // max(x, 0)^2
  void (*softcap)(float* x, float cap, size_t n);                                 // cap * tanh(x / cap)
  void (*rope)(const RopeCall&);
  void (*store_kv)(const StoreKvCall&);
  void (*attention)(const AttentionCall&);
  void (*merge_attention)(const AttentionCall&);  // `partial` holds [segment_begin, segment_end): writes `out`
  void (*convolve)(const ConvolveCall&);
  void (*scan)(const ScanCall&);
  void (*index_scores)(const IndexScoresCall&);

  void linear(const LinearCall& call, size_t panel_begin, size_t panel_end) const {
    (is_quantized(call.weight.format) ? quantized_linear : float_linear)(call, panel_begin, panel_end);
  }
};

// The scalar oracle: portable, slow.
const Kernels& ref_kernels();

// The best backend of this machine (of the targets Highway currently supports; tests narrow those with
// hwy::SetSupportedTargetsForTest). Falls back to ref_kernels().
Kernels best_kernels();

// Every SIMD target of this machine that Shoal has code for, best first, each as the argument that makes
// hwy::SetSupportedTargetsForTest force it. For tests and reports.
std::vector<int64_t> simd_targets();

}  // namespace shoal
