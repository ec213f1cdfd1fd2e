// Paged attention: lanes are tokens for the scores, channels for the weighted sum of V. The order is that of kernels.h.
//
// Query heads (row, head of the group) are taken kTile at a time; a tile walks the blocks once, so K and V of a block are
// read, and converted to f32, once per tile.
#include "kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/attention.cc"
#include "hwy/foreach_target.h"

#include <algorithm>
#include <limits>

#include "kernels/cpu/backend.h"
#include "kernels/cpu/lanes-inl.h"
#include "kernels/ref/ref.h"

HWY_BEFORE_NAMESPACE();
namespace shoal {
namespace HWY_NAMESPACE {
#if SHOAL_PORTABLE_TARGET
AttentionFunctions attention_functions() { return {&ref::attention, &ref::store_kv}; }
#else

constexpr uint32_t kTile = 8;
constexpr uint32_t kTogether = kRegs == 1 ? 8 : 4;  // scores computed at a time

struct State {
  float m;
  bool empty;
  alignas(64) float l[16];
  alignas(64) float o[kHeadDimMax];
};

// One query head of the tile.
struct Query {
  const float* q;
  float* out;
  uint32_t from, position;  // sees tokens [from, position]
  State segment, total;
};

void reset(State& s, uint32_t padded) {
  s.m = -std::numeric_limits<float>::infinity();
  s.empty = true;
  store(zero(), s.l);
  for (uint32_t d = 0; d < padded; d += 16) store(zero(), s.o + d);
}

void merge(const State& segment, uint32_t padded, State& total) {
  if (segment.empty) return;
  if (total.empty) {
    total.m = segment.m;
    total.empty = false;
    store(load(segment.l), total.l);
    for (uint32_t d = 0; d < padded; d += 16) store(load(segment.o + d), total.o + d);
    return;
  }
  const float top = std::max(total.m, segment.m);
  const F16x a = set1(exp1(total.m - top)), c = set1(exp1(segment.m - top));
  store(fma(load(segment.l), c, load(total.l) * a), total.l);
  for (uint32_t d = 0; d < padded; d += 16) store(fma(load(segment.o + d), c, load(total.o + d) * a), total.o + d);
  total.m = top;
}

// `count` (a multiple of 16) elements of a KV block as f32: in place if they are, else converted into `buffer`.
const float* as_floats(KvFormat format, const std::byte* p, size_t count, float* buffer) {
  if (format == KvFormat::kF32) return reinterpret_cast<const float*>(p);
  if (format == KvFormat::kF16) {
    const auto* from = reinterpret_cast<const hwy::float16_t*>(p);
    for (size_t i = 0; i < count; i += 16) store(load(from + i), buffer + i);
  } else {
    const auto* from = reinterpret_cast<const hwy::bfloat16_t*>(p);
    for (size_t i = 0; i < count; i += 16) store(load(from + i), buffer + i);
  }
  return buffer;
}

// scores[i] = 16 dots of queries[i] with the tokens of a block; key is [head_dim][16].
template <size_t N>
HWY_INLINE void dot_keys(const float* key, uint32_t head_dim, Query* const* queries, F16x* scores) {
  F16x acc[N];
  for (size_t i = 0; i < N; ++i) acc[i] = zero();
  for (uint32_t d = 0; d < head_dim; ++d) {
    const F16x k = load(key + d * kKvTokens);
    for (size_t i = 0; i < N; ++i) acc[i] = fma(k, set1(queries[i]->q[d]), acc[i]);
  }
  for (size_t i = 0; i < N; ++i) scores[i] = acc[i];
}

// What a block of tokens adds to one query: the weights of its tokens, and what becomes of the sums before it.
struct Share {
  uint32_t first, last;  // tokens of the block that the query sees
  float top, correction;
  alignas(64) float p[16];
  bool whole() const { return first == 0 && last == kKvTokens - 1; }
};

// o = o * c + sum of p[t] * value[t] over tokens ascending, N x 16 channels of Q queries at a time. REQUIRES: the queries
// see the same tokens.
template <size_t Q, size_t N>
HWY_INLINE void add_values(const float* value, uint32_t stride, Query* const* queries, const Share* shares, uint32_t d) {
  F16x acc[Q][N];
  for (size_t q = 0; q < Q; ++q) {
    for (size_t i = 0; i < N; ++i) acc[q][i] = load(queries[q]->segment.o + d + 16 * i) * set1(shares[q].correction);
  }
  for (uint32_t t = shares[0].first; t <= shares[0].last; ++t) {
    F16x v[N];
    for (size_t i = 0; i < N; ++i) v[i] = load(value + t * stride + d + 16 * i);
    for (size_t q = 0; q < Q; ++q) {
      const F16x weight = set1(shares[q].p[t]);
      for (size_t i = 0; i < N; ++i) acc[q][i] = fma(weight, v[i], acc[q][i]);
    }
  }
  for (size_t q = 0; q < Q; ++q) {
    for (size_t i = 0; i < N; ++i) store(acc[q][i], queries[q]->segment.o + d + 16 * i);
  }
}

template <size_t Q>
void add_values_of(const float* value, uint32_t stride, Query* const* queries, const Share* shares) {
  constexpr size_t kWide = kRegs == 1 ? 4 : 2;
  uint32_t d = 0;
  for (; d + 16 * kWide <= stride; d += 16 * kWide) add_values<Q, kWide>(value, stride, queries, shares, d);
  for (; d < stride; d += 16) add_values<Q, 1>(value, stride, queries, shares, d);
}

// Takes the scores of a block into the running softmax of `count` queries, stage by stage: no query waits for another.
void add_block(const AttentionCall& call, const F16x* scores, const float* value, Query* const* queries, Share* shares, size_t count) {
  alignas(64) float drop[16] = {};
  F16x s[kTile];
  for (size_t i = 0; i < count; ++i) {
    s[i] = scores[i] * set1(call.scale);
    if (call.softcap > 0) {
      const F16x cap = set1(call.softcap);
      s[i] = cap * tanh(s[i] / cap);
    }
    if (!shares[i].whole()) {
      s[i] = select_lanes(shares[i].first, shares[i].last, s[i], set1(-std::numeric_limits<float>::infinity()));
    }
    shares[i].top = std::max(queries[i]->segment.m, tree_max(s[i]));
    drop[i] = queries[i]->segment.m - shares[i].top;
  }
  store(exp(load(drop)), drop);
  for (size_t i = 0; i < count; ++i) {
    State& state = queries[i]->segment;
    const F16x weights = exp(s[i] - set1(shares[i].top));
    store(weights, shares[i].p);
    shares[i].correction = drop[i];
    store(fma(load(state.l), set1(drop[i]), weights), state.l);
    state.m = shares[i].top;
    state.empty = false;
  }
  const uint32_t stride = round_up_lanes(call.head_dim);
  size_t i = 0;
  while (i < count) {
    const bool pair = i + 2 <= count && shares[i].first == shares[i + 1].first && shares[i].last == shares[i + 1].last;
    if (pair) {
      add_values_of<2>(value, stride, queries + i, shares + i);
    } else {
      add_values_of<1>(value, stride, queries + i, shares + i);
    }
    i += pair ? 2 : 1;
  }
}

// Scores of `count` queries, a few together so that a line of K is loaded once for them.
void score(const float* key, uint32_t head_dim, Query* const* queries, size_t count, F16x* scores) {
  size_t i = 0;
  for (; i + kTogether <= count; i += kTogether) dot_keys<kTogether>(key, head_dim, queries + i, scores + i);
  for (; i + 2 <= count; i += 2) dot_keys<2>(key, head_dim, queries + i, scores + i);
  for (; i < count; ++i) dot_keys<1>(key, head_dim, queries + i, scores + i);
}

void attend_tile(const AttentionCall& call, Query* tile, uint32_t count) {
  const uint32_t padded = round_up_lanes(call.head_dim);
  alignas(64) float key_buffer[kKvTokens * kHeadDimMax];
  alignas(64) float value_buffer[kKvTokens * kHeadDimMax];
  uint32_t from = tile[0].from, to = tile[0].position;
  for (uint32_t i = 0; i < count; ++i) {
    from = std::min(from, tile[i].from);
    to = std::max(to, tile[i].position);
    reset(tile[i].segment, padded);
    reset(tile[i].total, padded);
  }
  for (uint32_t b = from / kKvTokens; b <= to / kKvTokens; ++b) {
    const uint32_t begin = b * kKvTokens, end = begin + kKvTokens - 1;
    Query* seeing[kTile];
    size_t seeing_count = 0;
    for (uint32_t i = 0; i < count; ++i) {
      if (tile[i].from <= end && tile[i].position >= begin) seeing[seeing_count++] = &tile[i];
    }
    if (b % kSegmentBlocks == 0) {
      for (uint32_t i = 0; i < count; ++i) {
        merge(tile[i].segment, padded, tile[i].total);
        reset(tile[i].segment, padded);
      }
    }
    const std::byte* block = call.blocks[b];
    const float* key = as_floats(call.format, block + call.key_offset, size_t{kKvTokens} * call.head_dim, key_buffer);
    const float* value = as_floats(call.format, block + call.value_offset, size_t{kKvTokens} * padded, value_buffer);
    F16x scores[kTile];
    Share shares[kTile];
    score(key, call.head_dim, seeing, seeing_count, scores);
    for (size_t i = 0; i < seeing_count; ++i) {
      const Query& q = *seeing[i];
      shares[i].first = q.from > begin ? q.from - begin : 0;
      shares[i].last = std::min(q.position, end) - begin;
    }
    add_block(call, scores, value, seeing, shares, seeing_count);
  }
}

void finish(const AttentionCall& call, Query& query) {
  merge(query.segment, round_up_lanes(call.head_dim), query.total);
  const F16x inverse = set1(1.0f / tree_sum(load(query.total.l)));
  for (uint32_t d = 0; d < call.head_dim; d += 16) {
    const F16x value = load(query.total.o + d) * inverse;
    if (d + 16 <= call.head_dim) {
      store(value, query.out + d);
    } else {
      store_first(value, query.out + d, call.head_dim - d);
    }
  }
}

void attention(const AttentionCall& call) {
  Query tile[kTile];
  const uint32_t queries = call.rows * call.group;
  for (uint32_t begin = 0; begin < queries; begin += kTile) {
    const uint32_t count = std::min(kTile, queries - begin);
    for (uint32_t i = 0; i < count; ++i) {
      const uint32_t row = (begin + i) / call.group, head = (begin + i) % call.group;
      Query& query = tile[i];
      query.q = call.q + row * call.q_stride + size_t{head} * call.head_dim;
      query.out = call.out + row * call.out_stride + size_t{head} * call.head_dim;
      query.position = call.position + row;
      query.from = call.window != 0 && query.position + 1 > call.window ? query.position + 1 - call.window : 0;
    }
    attend_tile(call, tile, count);
    for (uint32_t i = 0; i < count; ++i) finish(call, tile[i]);
  }
}

AttentionFunctions attention_functions() { return {&attention, &ref::store_kv}; }
#endif  // SHOAL_PORTABLE_TARGET

}  // namespace HWY_NAMESPACE
}  // namespace shoal
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace shoal {
HWY_EXPORT(attention_functions);
AttentionFunctions chosen_attention() { return HWY_DYNAMIC_DISPATCH(attention_functions)(); }
}  // namespace shoal
#endif
