// Scalar paged attention: the definition of the order of its sums (kernels.h, AttentionCall).
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "kernels/ref/math.h"
#include "kernels/ref/ref.h"
#include "tensor/half.h"

namespace shoal::ref {
namespace {

float load_kv(KvFormat format, const std::byte* base, size_t at) {
  if (format == KvFormat::kF32) {
    float value;
    std::memcpy(&value, base + 4 * at, 4);
    return value;
  }
  uint16_t half;
  std::memcpy(&half, base + 2 * at, 2);
  return format == KvFormat::kF16 ? f32_from_f16(half) : f32_from_bf16(half);
}

void put_kv(KvFormat format, std::byte* base, size_t at, float value) {
  if (format == KvFormat::kF32) {
    std::memcpy(base + 4 * at, &value, 4);
    return;
  }
  const uint16_t half = format == KvFormat::kF16 ? f16_from_f32(value) : bf16_from_f32(value);
  std::memcpy(base + 2 * at, &half, 2);
}

// Running softmax: maximum, 16 lanes of the denominator, weighted sum of V.
struct State {
  float m = -std::numeric_limits<float>::infinity();
  float l[16] = {};
  float o[kHeadDimMax] = {};
  bool empty = true;
};

void add_block(const AttentionCall& call, const float* q, const std::byte* block, uint32_t first, uint32_t last, State& s) {
  const std::byte* key = block + call.key_offset;
  const std::byte* value = block + call.value_offset;
  float p[kKvTokens];
  float top = s.m;
  for (uint32_t t = first; t <= last; ++t) {
    float dot = 0;
    for (uint32_t d = 0; d < call.head_dim; ++d) dot = std::fma(load_kv(call.format, key, d * kKvTokens + t), q[d], dot);
    p[t] = dot * call.scale;
    if (call.softcap > 0) p[t] = call.softcap * ref::tanh(p[t] / call.softcap);
    top = std::max(top, p[t]);
  }
  const float correction = ref::exp(s.m - top);
  for (uint32_t t = 0; t < kKvTokens; ++t) {
    const bool seen = t >= first && t <= last;
    if (seen) p[t] = ref::exp(p[t] - top);
    s.l[t] = std::fma(s.l[t], correction, seen ? p[t] : 0.0f);
  }
  const size_t stride = round_up_lanes(call.head_dim);
  for (uint32_t d = 0; d < call.head_dim; ++d) {
    float o = s.o[d] * correction;
    for (uint32_t t = first; t <= last; ++t) o = std::fma(p[t], load_kv(call.format, value, t * stride + d), o);
    s.o[d] = o;
  }
  s.m = top;
  s.empty = false;
}

void merge(const State& segment, uint32_t head_dim, State& total) {
  if (segment.empty) return;
  if (total.empty) {
    total = segment;
    return;
  }
  const float top = std::max(total.m, segment.m);
  const float a = ref::exp(total.m - top), c = ref::exp(segment.m - top);
  for (int i = 0; i < 16; ++i) total.l[i] = std::fma(segment.l[i], c, total.l[i] * a);
  for (uint32_t d = 0; d < head_dim; ++d) total.o[d] = std::fma(segment.o[d], c, total.o[d] * a);
  total.m = top;
}

void attend(const AttentionCall& call, const float* q, uint32_t position, float* out) {
  const uint32_t from = call.window != 0 && position + 1 > call.window ? position + 1 - call.window : 0;
  State total, segment;
  for (uint32_t b = from / kKvTokens; b <= position / kKvTokens; ++b) {
    if (b % kSegmentBlocks == 0) {
      merge(segment, call.head_dim, total);
      segment = State{};
    }
    const uint32_t begin = b * kKvTokens;
    const uint32_t first = from > begin ? from - begin : 0;
    const uint32_t last = std::min(position - begin, kKvTokens - 1);
    add_block(call, q, call.blocks[b], first, last, segment);
  }
  merge(segment, call.head_dim, total);
  const float inverse = 1.0f / tree_sum(total.l);
  for (uint32_t d = 0; d < call.head_dim; ++d) out[d] = total.o[d] * inverse;
}

}  // namespace

void store_kv(const StoreKvCall& call) {
  const uint32_t stride = round_up_lanes(call.head_dim);
  for (uint32_t head = 0; head < call.kv_heads; ++head) {
    std::byte* key = call.key + head * call.head_bytes;
    std::byte* value = call.value + head * call.head_bytes;
    const size_t from = static_cast<size_t>(head) * call.head_dim;
    for (uint32_t d = 0; d < call.head_dim; ++d) put_kv(call.format, key, d * kKvTokens + call.slot, call.k[from + d]);
    for (uint32_t d = 0; d < stride; ++d) {
      put_kv(call.format, value, static_cast<size_t>(call.slot) * stride + d, d < call.head_dim ? call.v[from + d] : 0.0f);
    }
  }
}

void attention(const AttentionCall& call) {
  for (uint32_t row = 0; row < call.rows; ++row) {
    for (uint32_t g = 0; g < call.group; ++g) {
      const size_t head = static_cast<size_t>(g) * call.head_dim;
      attend(call, call.q + row * call.q_stride + head, call.position + row, call.out + row * call.out_stride + head);
    }
  }
}

}  // namespace shoal::ref
