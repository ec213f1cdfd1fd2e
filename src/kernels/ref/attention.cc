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

uint16_t half_at(const std::byte* base, size_t at) {
  uint16_t half;
  std::memcpy(&half, base + 2 * at, 2);
  return half;
}

// K or V of a head in a block, number by number.
struct Numbers {
  KvFormat format;
  const std::byte* base;
  uint32_t channels;  // of a token, as stored

  float at(size_t place, uint32_t token, uint32_t channel) const {
    if (format == KvFormat::kF16) return f32_from_f16(half_at(base, place));
    if (format == KvFormat::kBF16) return f32_from_bf16(half_at(base, place));
    if (format == KvFormat::kQ8_0) {
      const std::byte* scales = base + size_t{channels} * kKvTokens;
      return static_cast<float>(static_cast<int8_t>(base[place])) * f32_from_f16(half_at(scales, channel / kKvQuantBlock * kKvTokens + token));
    }
    float value;
    std::memcpy(&value, base + 4 * place, 4);
    return value;
  }
  float key(uint32_t token, uint32_t channel) const { return at(size_t{channel} * kKvTokens + token, token, channel); }
  float value(uint32_t token, uint32_t channel) const { return at(size_t{token} * channels + channel, token, channel); }
};

void put_number(KvFormat format, std::byte* base, size_t at, float value) {
  if (format == KvFormat::kF32) {
    std::memcpy(base + 4 * at, &value, 4);
    return;
  }
  const uint16_t half = format == KvFormat::kF16 ? f16_from_f32(value) : bf16_from_f32(value);
  std::memcpy(base + 2 * at, &half, 2);
}

// One token of a head in kQ8_0: channel c has its code at base + c * step.
void put_codes(const float* x, uint32_t head_dim, uint32_t channels, uint32_t slot, std::byte* base, std::byte* codes, size_t step) {
  constexpr float kScaleMax = 65504.0f;  // of f16
  for (uint32_t first = 0; first < channels; first += kKvQuantBlock) {
    float amax = 0;
    for (uint32_t c = first; c < std::min(first + kKvQuantBlock, head_dim); ++c) amax = std::fmax(amax, std::fabs(x[c]));
    const uint16_t half = f16_from_f32(std::fmin(amax / 127.0f, kScaleMax));
    const float scale = f32_from_f16(half), inverse = scale > 0 ? 1.0f / scale : 0.0f;
    std::memcpy(base + size_t{channels} * kKvTokens + 2 * (first / kKvQuantBlock * kKvTokens + slot), &half, 2);
    for (uint32_t c = first; c < first + kKvQuantBlock; ++c) {
      const float code = c < head_dim ? std::fmin(std::fmax(std::nearbyint(x[c] * inverse), -127.0f), 127.0f) : 0.0f;
      codes[c * step] = static_cast<std::byte>(static_cast<int8_t>(code));
    }
  }
}

// Running softmax: maximum, 16 lanes of the denominator, weighted sum of V.
struct State {
  float m = -std::numeric_limits<float>::infinity();
  float l[16] = {};
  float o[kHeadDimMax] = {};
  bool empty = true;
};

void add_block(const AttentionCall& call, const float* q, const std::byte* block, uint32_t first, uint32_t last, uint32_t bits, State& s) {
  const uint32_t channels = kv_channels(call.format, call.head_dim);
  const Numbers key{call.format, block + call.key_offset, channels};
  const Numbers value{call.format, block + call.value_offset, kv_channels(call.format, call.value_dim)};
  float p[kKvTokens];
  float top = s.m;
  for (uint32_t t = first; t <= last; ++t) {
    float dot = 0;
    for (uint32_t d = 0; d < call.head_dim; ++d) dot = std::fma(key.key(t, d), q[d], dot);
    p[t] = dot * call.scale;
    if (call.softcap > 0) p[t] = call.softcap * ref::tanh(p[t] / call.softcap);
    if ((bits >> t & 1) != 0) top = std::max(top, p[t]);
  }
  const float correction = ref::exp(s.m - top);
  for (uint32_t t = 0; t < kKvTokens; ++t) {
    const bool seen = t >= first && t <= last && (bits >> t & 1) != 0;
    p[t] = seen ? ref::exp(p[t] - top) : 0.0f;
    s.l[t] = std::fma(s.l[t], correction, p[t]);
  }
  for (uint32_t d = 0; d < call.value_dim; ++d) {
    float o = s.o[d] * correction;
    for (uint32_t t = first; t <= last; ++t) o = std::fma(p[t], call.compressed ? key.key(t, d) : value.value(t, d), o);
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

struct Range {
  uint32_t from, position;  // the row sees tokens [from, position]
  const uint16_t* selected; // ... and of these, or null
};
Range range_of(const AttentionCall& call, uint32_t row) {
  const uint32_t position = call.position + row;
  return {call.first_seen(position), call.last_seen(position), call.selected.of(row)};
}

State attend_segment(const AttentionCall& call, const float* q, const Range& range, uint32_t segment) {
  State state;
  const uint32_t first_block = std::max(range.from / kKvTokens, segment * kSegmentBlocks);
  const uint32_t last_block = std::min(range.position / kKvTokens, segment * kSegmentBlocks + kSegmentBlocks - 1);
  for (uint32_t b = first_block; b <= last_block; ++b) {
    const uint32_t begin = b * kKvTokens;
    const uint32_t first = range.from > begin ? range.from - begin : 0;
    const uint32_t last = std::min(range.position - begin, kKvTokens - 1), bits = range.selected == nullptr ? 0xffffu : range.selected[b];
    if ((bits >> first & ((2u << (last - first)) - 1)) == 0) continue;
    add_block(call, q, call.blocks[b], first, last, bits, state);
  }
  return state;
}

// Where the state of a query stands in call.partial.
float* state_at(const AttentionCall& call, uint32_t segment, uint32_t row, uint32_t head) {
  const size_t query = (size_t{segment - call.segment_begin} * call.rows + row) * call.group + head;
  return call.partial + query * attention_state_floats(call.value_dim);
}

void put_state(const State& state, uint32_t head_dim, float* out) {
  std::fill_n(out, attention_state_floats(head_dim), 0.0f);
  out[0] = state.m;
  out[1] = state.empty ? 0.0f : 1.0f;
  std::copy_n(state.l, 16, out + 16);
  std::copy_n(state.o, head_dim, out + 32);
}

State get_state(const float* in, uint32_t head_dim) {
  State state;
  state.m = in[0];
  state.empty = in[1] == 0.0f;
  std::copy_n(in + 16, 16, state.l);
  std::copy_n(in + 32, head_dim, state.o);
  return state;
}

void finish(const AttentionCall& call, State& total, uint32_t row, uint32_t head) {
  float* out = call.out + row * call.out_stride + size_t{head} * call.value_dim;
  const float sum = tree_sum(total.l);
  float inverse = 1.0f / sum;
  if (call.sinks != nullptr) {
    const float sink = call.sinks[head], top = std::max(total.m, sink), c = ref::exp(total.m - top);
    inverse = c / std::fma(sum, c, ref::exp(sink - top));
  }
  for (uint32_t d = 0; d < call.value_dim; ++d) out[d] = total.o[d] * inverse;
}

// body(row, head) for every query.
template <typename Body>
void for_queries(const AttentionCall& call, const Body& body) {
  for (uint32_t row = 0; row < call.rows; ++row) {
    for (uint32_t head = 0; head < call.group; ++head) body(row, head);
  }
}

}  // namespace

void store_kv(const StoreKvCall& call) {
  const uint32_t channels = kv_channels(call.format, call.head_dim), value_channels = kv_channels(call.format, call.value_dim);
  for (uint32_t head = 0; head < call.kv_heads; ++head) {
    std::byte* key = call.key + head * call.key_bytes;
    std::byte* value = call.value + head * call.value_bytes;
    const float* k = call.k + size_t{head} * call.head_dim;
    const float* v = call.v == nullptr ? nullptr : call.v + size_t{head} * call.value_dim;
    if (call.format == KvFormat::kQ8_0) {
      put_codes(k, call.head_dim, channels, call.slot, key, key + call.slot, kKvTokens);
      if (call.v == nullptr) continue;
      put_codes(v, call.value_dim, value_channels, call.slot, value, value + size_t{call.slot} * value_channels, 1);
      continue;
    }
    for (uint32_t d = 0; d < call.head_dim; ++d) put_number(call.format, key, d * kKvTokens + call.slot, k[d]);
    for (uint32_t d = 0; d < value_channels && v != nullptr; ++d) {
      put_number(call.format, value, size_t{call.slot} * value_channels + d, d < call.value_dim ? v[d] : 0.0f);
    }
  }
}

void attention(const AttentionCall& call) {
  for_queries(call, [&](uint32_t row, uint32_t head) {
    const float* q = call.q + row * call.q_stride + size_t{head} * call.head_dim;
    const Range range = range_of(call, row);
    if (call.partial != nullptr) {
      for (uint32_t s = call.segment_begin; s < call.segment_end; ++s) {
        put_state(attend_segment(call, q, range, s), call.value_dim, state_at(call, s, row, head));
      }
      return;
    }
    State total;
    for (uint32_t s = 0; s < call.segments(); ++s) merge(attend_segment(call, q, range, s), call.value_dim, total);
    finish(call, total, row, head);
  });
}

void merge_attention(const AttentionCall& call) {
  for_queries(call, [&](uint32_t row, uint32_t head) {
    State total;
    for (uint32_t s = call.segment_begin; s < call.segment_end; ++s) {
      merge(get_state(state_at(call, s, row, head), call.value_dim), call.value_dim, total);
    }
    finish(call, total, row, head);
  });
}

}  // namespace shoal::ref
