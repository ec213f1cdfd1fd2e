// Paged attention: lanes are tokens for the scores, channels for the weighted sum of V. The order is that of kernels.h.
//
// Query heads (row, head of the group) are taken kTile at a time and walk the blocks together: what a query has in memory is read once
// for them all, kBlocks at once. Blocks that few queries see are widened to f32 in registers, once for kTogether queries; those that many
// see are widened once into a buffer.
#include "kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/attention.cc"
#include "hwy/foreach_target.h"

#include <algorithm>
#include <limits>

#include "kernels/cpu/backend.h"
#include "kernels/cpu/kv_lines-inl.h"
#include "kernels/cpu/lanes-inl.h"
#include "kernels/ref/ref.h"

HWY_BEFORE_NAMESPACE();
namespace shoal {
namespace HWY_NAMESPACE {
#if SHOAL_PORTABLE_TARGET
AttentionFunctions attention_functions() { return {&ref::attention, &ref::merge_attention, &ref::store_kv}; }
#else

constexpr uint32_t kTile = 96;
constexpr uint32_t kTogether = kRegs == 1 ? 12 : 4;  // queries whose sums fill the registers ...
constexpr uint32_t kBlocks = kRegs == 1 ? 2 : 1;     // ... of so many blocks
constexpr float kLowest = -std::numeric_limits<float>::infinity();

// A running softmax for each query of a tile.
struct Running {
  alignas(64) float m[kTile];
  alignas(64) float l[kTile][16];
  alignas(64) float o[kTile * kHeadDimMax];  // [query][padded values]
  bool empty[kTile];
};

// A block as the queries of a tile see it.
struct Seen {
  uint32_t first[kTile], last[kTile];  // tokens [first, last], none if first > last ...
  uint32_t bits[kTile];                // ... and of these
  alignas(64) float p[kTile][16];      // scores, then the weights of its tokens
  alignas(64) float correction[kTile];

  bool none(uint32_t query) const { return first[query] > last[query]; }
  bool alike(uint32_t a, uint32_t b) const { return first[a] == first[b] && last[a] == last[b]; }
};

struct Tile {
  uint32_t count, padded;
  uint32_t from[kTile], position[kTile];     // a query sees tokens [from, position], its own or a later one ...
  const uint16_t* selected[kTile];           // ... and of these, or null
  uint32_t blocks;                           // that are computed with at once
  Seen seen[kBlocks];
  alignas(64) float q[kTile * kHeadDimMax];  // of `width` queries that are scored together: [head_dim][width]
  alignas(64) float top[kTile];
  Running segment, total;
};

// Calls body.operator()<N>(first) for runs of N queries that together are [begin, end).
template <typename Body>
HWY_INLINE void in_groups(uint32_t begin, uint32_t end, const Body& body) {
  if constexpr (kTogether > 8) {
    for (; begin + kTogether <= end; begin += kTogether) body.template operator()<kTogether>(begin);
    for (; begin + 8 <= end; begin += 8) body.template operator()<8>(begin);
  }
  for (; begin + 4 <= end; begin += 4) body.template operator()<4>(begin);
  for (; begin + 2 <= end; begin += 2) body.template operator()<2>(begin);
  for (; begin < end; ++begin) body.template operator()<1>(begin);
}

void reset(Running& state, const Tile& tile) {
  for (uint32_t i = 0; i < tile.count; ++i) {
    state.m[i] = kLowest;
    state.empty[i] = true;
    store(zero(), state.l[i]);
  }
  std::fill_n(state.o, size_t{tile.count} * tile.padded, 0.0f);
}

// A state as it stands in AttentionCall::partial, or of one query of a tile.
struct StateView {
  float m;
  bool empty;
  const float* l;
  const float* o;
};
StateView view(const Running& state, uint32_t i, uint32_t padded) {
  return {state.m[i], state.empty[i], state.l[i], state.o + size_t{i} * padded};
}

// total = total merged with a later segment, for query i.
void merge(const StateView& segment, uint32_t i, uint32_t padded, Running& total) {
  if (segment.empty) return;
  float* o = total.o + size_t{i} * padded;
  if (total.empty[i]) {
    total.m[i] = segment.m;
    total.empty[i] = false;
    store(load(segment.l), total.l[i]);
    std::copy_n(segment.o, padded, o);
    return;
  }
  const float top = std::max(total.m[i], segment.m);
  const F16x a = set1(exp1(total.m[i] - top)), c = set1(exp1(segment.m - top));
  store(fma(load(segment.l), c, load(total.l[i]) * a), total.l[i]);
  for (uint32_t d = 0; d < padded; d += 16) store(fma(load(segment.o + d), c, load(o + d) * a), o + d);
  total.m[i] = top;
}

// scores [query][16 tokens] of W queries and B blocks.
template <uint32_t W, uint32_t B, typename Lines>
HWY_INLINE void dot_keys(const Lines* keys, uint32_t head_dim, uint32_t query, Tile& tile, Ahead& ahead) {
  const float* const q = tile.q + size_t{query} * head_dim;
  F16x acc[B][W];
  SHOAL_UNROLLED(b, B) {
    SHOAL_UNROLLED(i, W) acc[b][i] = zero();
  }
  for (uint32_t first = 0; first < head_dim; first += kKvQuantBlock) {
    ahead.some();
    decltype(keys->key_scale(0)) scale[B];
    SHOAL_UNROLLED(b, B) scale[b] = keys[b].key_scale(first);
    const uint32_t end = std::min(first + kKvQuantBlock, head_dim);
    const float* x_d = q + size_t{first} * W;
    for (size_t d = first; d < end; ++d, x_d += W) {
      F16x k[B];
      SHOAL_UNROLLED(b, B) k[b] = keys[b].key(d, scale[b]);
      SHOAL_UNROLLED(i, W) {
        const F16x x = set1(x_d[i]);
        SHOAL_UNROLLED(b, B) acc[b][i] = fma(k[b], x, acc[b][i]);
      }
    }
  }
  SHOAL_UNROLLED(b, B) {
    SHOAL_UNROLLED(i, W) store(acc[b][i], tile.seen[b].p[query + i]);
  }
}

// Block after block: o = o * c + sum of p[t] * value[t] over tokens ascending, N x 16 channels from d of Q queries that see the same.
template <uint32_t Q, uint32_t N, typename Values>
HWY_INLINE void add_values(const Values* values, Tile& tile, uint32_t query, size_t d, Ahead& ahead) {
  float* o = tile.segment.o + size_t{query} * tile.padded + d;
  F16x acc[Q][N];
  SHOAL_UNROLLED(q, Q) {
    SHOAL_UNROLLED(i, N) acc[q][i] = load(o + q * tile.padded + 16 * i);
  }
  for (uint32_t b = 0; b < tile.blocks; ++b) {
    const Seen& seen = tile.seen[b];
    if (seen.none(query)) continue;
    SHOAL_UNROLLED(q, Q) {
      const F16x correction = set1(seen.correction[query + q]);
      SHOAL_UNROLLED(i, N) acc[q][i] = acc[q][i] * correction;
    }
    const size_t last = seen.last[query];
    const float* p = seen.p[query] + seen.first[query];
    for (size_t t = seen.first[query]; t <= last; ++t, ++p) {
      if (t % 4 == 0) ahead.some();
      F16x v[N];
      SHOAL_UNROLLED(i, N) v[i] = values[b].value(t, d + 16 * i);
      SHOAL_UNROLLED(q, Q) {
        const F16x weight = set1(p[16 * q]);
        SHOAL_UNROLLED(i, N) acc[q][i] = fma(weight, v[i], acc[q][i]);
      }
    }
  }
  SHOAL_UNROLLED(q, Q) {
    SHOAL_UNROLLED(i, N) store(acc[q][i], o + q * tile.padded + 16 * i);
  }
}

// Of tokens that are not selected: the least.
HWY_INLINE F16x select_bits(uint32_t bits, const F16x& scores) {
  float lanes[16];
  store(scores, lanes);
  for (uint32_t t = 0; t < 16; ++t) {
    if ((bits >> t & 1) == 0) lanes[t] = kLowest;
  }
  return load(lanes);
}

// Takes the scores of a block into the running softmax, stage by stage: no query waits for another.
void take_scores(const AttentionCall& call, Tile& tile, Seen& seen) {
  for (uint32_t i = 0; i < tile.count; ++i) {
    tile.top[i] = tile.segment.m[i];
    if (seen.none(i)) continue;
    F16x s = load(seen.p[i]) * set1(call.scale);
    if (call.softcap > 0) {
      const F16x cap = set1(call.softcap);
      s = cap * tanh(s / cap);
    }
    if (seen.first[i] != 0 || seen.last[i] != kKvTokens - 1) s = select_lanes(seen.first[i], seen.last[i], s, set1(kLowest));
    if (seen.bits[i] != 0xffffu) s = select_bits(seen.bits[i], s);
    store(s, seen.p[i]);
    tile.top[i] = std::max(tile.segment.m[i], tree_max(s));
  }
  for (uint32_t i = 0; i < tile.count; i += 16) store(exp_of_nonpositive(load(tile.segment.m + i) - load(tile.top + i)), seen.correction + i);
  for (uint32_t i = 0; i < tile.count; ++i) {
    if (seen.none(i)) continue;
    const F16x weights = exp_of_nonpositive(load(seen.p[i]) - set1(tile.top[i]));
    store(weights, seen.p[i]);
    store(fma(load(tile.segment.l[i]), set1(seen.correction[i]), weights), tile.segment.l[i]);
    tile.segment.m[i] = tile.top[i];
    tile.segment.empty[i] = false;
  }
}

// Whether two queries see the same tokens of the blocks.
HWY_INLINE bool alike(const Tile& tile, uint32_t a, uint32_t b) {
  for (uint32_t i = 0; i < tile.blocks; ++i) {
    if (!tile.seen[i].alike(a, b)) return false;
  }
  return true;
}

template <typename Lines, typename Values>
void add_blocks(const AttentionCall& call, const Lines* keys, const Values* values, Ahead& ahead, Tile& tile) {
  in_groups(0, tile.count, [&]<uint32_t W>(uint32_t i) HWY_ATTR {
    if (tile.blocks == kBlocks) return dot_keys<W, kBlocks>(keys, call.head_dim, i, tile, ahead);
    dot_keys<W, 1>(keys, call.head_dim, i, tile, ahead);
  });
  for (uint32_t b = 0; b < tile.blocks; ++b) take_scores(call, tile, tile.seen[b]);
  uint32_t runs = 0, end_of[kTile];  // of queries that see the same
  for (uint32_t begin = 0, end = 0; begin < tile.count; begin = end) {
    for (end = begin + 1; end < tile.count && alike(tile, begin, end);) ++end;
    end_of[runs++] = end;
  }
  // Some channels of all tokens stay in the first cache while the queries pass over them.
  for (uint32_t first = 0; first < tile.padded; first += WidenedValues::kChannels) {
    const uint32_t last = std::min(tile.padded, first + WidenedValues::kChannels);
    for (uint32_t run = 0; run < runs; ++run) {
      in_groups(run == 0 ? 0 : end_of[run - 1], end_of[run], [&]<uint32_t Q>(uint32_t i) HWY_ATTR {
        constexpr uint32_t N = kRegs != 1 ? 1 : Q >= 8 ? 2 : 4;
        uint32_t d = first;
        for (; d + 16 * N <= last; d += 16 * N) add_values<Q, N>(values, tile, i, d, ahead);
        for (; d < last; d += 16) add_values<Q, 1>(values, tile, i, d, ahead);
      });
    }
  }
}

// key(b) and value(b): what is stored of block b of these.
template <typename Key, typename Value>
void add_widened(const AttentionCall& call, const Key& key, const Value& value, Ahead& ahead, Tile& tile) {
  constexpr uint32_t kFloats = kKvTokens * kHeadDimMax;
  alignas(64) float key_buffers[kBlocks][kFloats];
  alignas(64) float value_buffers[kBlocks][kFloats];
  FloatLines keys[kBlocks];
  WidenedValues values[kBlocks];
  for (uint32_t b = 0; b < tile.blocks; ++b) {
    keys[b] = FloatLines(key_buffers[b], round_up_lanes(call.head_dim));
    values[b] = WidenedValues(value_buffers[b]);
    if (call.compressed) widen_compressed(key(b), call.head_dim, call.value_dim, tile.padded, key_buffers[b], values[b]);
    else widen(key(b), value(b), call.head_dim, tile.padded, key_buffers[b], values[b]);
  }
  add_blocks(call, keys, values, ahead, tile);
}

template <typename Lines>
bool widens(const AttentionCall& call, const Tile& tile) {
  return call.compressed || (!Lines::kInPlace && tile.count > kTogether);
}

// Of tile.blocks blocks.
template <typename Lines>
void add_stored_blocks(const AttentionCall& call, std::byte* const* blocks, Ahead ahead, Tile& tile) {
  const auto key = [&](uint32_t b) HWY_ATTR { return Lines(blocks[b] + call.key_offset, kv_channels(call.format, call.head_dim)); };
  const auto value = [&](uint32_t b) HWY_ATTR { return Lines(blocks[b] + call.value_offset, kv_channels(call.format, call.value_dim)); };
  if (widens<Lines>(call, tile)) return add_widened(call, key, value, ahead, tile);
  const uint32_t last = tile.blocks - 1;
  if constexpr (kBlocks == 2) {  // where there is one, it stands in for the other
    const Lines keys[] = {key(0), key(last)}, values[] = {value(0), value(last)};
    return add_blocks(call, keys, values, ahead, tile);
  }
  const Lines keys = key(0), values = value(0);
  add_blocks(call, &keys, &values, ahead, tile);
}

// Which tokens of block b each query sees.
void look_at(const Tile& tile, uint32_t b, Seen& seen) {
  const uint32_t begin = b * kKvTokens, end = begin + kKvTokens - 1;
  for (uint32_t i = 0; i < tile.count; ++i) {
    const bool sees = tile.from[i] <= end && tile.position[i] >= begin;
    seen.first[i] = !sees ? 1 : std::max(tile.from[i], begin) - begin;
    seen.last[i] = !sees ? 0 : std::min(tile.position[i], end) - begin;
    seen.bits[i] = tile.selected[i] == nullptr ? 0xffffu : tile.selected[i][b];
    if (sees && (seen.bits[i] >> seen.first[i] & ((2u << (seen.last[i] - seen.first[i])) - 1)) == 0) seen.first[i] = 1, seen.last[i] = 0;
  }
}

template <typename Lines>
void attend_blocks(const AttentionCall& call, Tile& tile, uint32_t begin, uint32_t end) {
  const bool widened = widens<Lines>(call, tile);
  for (uint32_t b = begin; b < end; b += tile.blocks) {
    tile.blocks = std::min(kBlocks, end - b);
    for (uint32_t i = 0; i < tile.blocks; ++i) look_at(tile, b + i, tile.seen[i]);
    const uint32_t next = b + tile.blocks;
    add_stored_blocks<Lines>(call, call.blocks + b, Ahead(call, call.blocks + next, std::min(kBlocks, end - next), !widened), tile);
  }
}

void attend_segment(const AttentionCall& call, Tile& tile, uint32_t segment) {
  reset(tile.segment, tile);
  const uint32_t from = *std::min_element(tile.from, tile.from + tile.count);
  const uint32_t to = *std::max_element(tile.position, tile.position + tile.count);
  const uint32_t begin = std::max(from / kKvTokens, segment * kSegmentBlocks);
  const uint32_t end = std::min(to / kKvTokens, segment * kSegmentBlocks + kSegmentBlocks - 1) + 1;
  switch (call.format) {
    case KvFormat::kF32: return attend_blocks<PlainLines<float>>(call, tile, begin, end);
    case KvFormat::kF16: return attend_blocks<PlainLines<hwy::float16_t>>(call, tile, begin, end);
    case KvFormat::kBF16: return attend_blocks<PlainLines<hwy::bfloat16_t>>(call, tile, begin, end);
    case KvFormat::kQ8_0: return attend_blocks<CodedLines>(call, tile, begin, end);
  }
}

// Queries [begin, begin + count) of the call.
void fill_tile(const AttentionCall& call, uint32_t begin, uint32_t count, Tile& tile) {
  tile.count = count;
  tile.padded = round_up_lanes(call.value_dim);
  for (uint32_t i = 0; i < count; ++i) {
    const uint32_t row = (begin + i) / call.group, own = call.position + row;
    tile.from[i] = call.first_seen(own);
    tile.position[i] = call.last_seen(own);
    tile.selected[i] = call.selected.of(row);
  }
  in_groups(0, count, [&]<uint32_t W>(uint32_t first) HWY_ATTR {
    for (uint32_t i = 0; i < W; ++i) {
      const uint32_t row = (begin + first + i) / call.group, head = (begin + first + i) % call.group;
      const float* q = call.q + row * call.q_stride + size_t{head} * call.head_dim;
      for (uint32_t d = 0; d < call.head_dim; ++d) tile.q[size_t{first} * call.head_dim + d * W + i] = q[d];
    }
  });
  // Lanes past the last query are computed with, and their results are not used.
  for (uint32_t i = count; i < kTile; ++i) tile.segment.m[i] = tile.top[i] = 0;
}

float* partial_at(const AttentionCall& call, uint32_t segment, uint32_t query) {
  const size_t state = size_t{segment - call.segment_begin} * call.rows * call.group + query;
  return call.partial + state * attention_state_floats(call.value_dim);
}

void put_partials(const AttentionCall& call, const Tile& tile, uint32_t segment, uint32_t begin) {
  for (uint32_t i = 0; i < tile.count; ++i) {
    float* out = partial_at(call, segment, begin + i);
    store(zero(), out);
    out[0] = tile.segment.m[i];
    out[1] = tile.segment.empty[i] ? 0.0f : 1.0f;
    store(load(tile.segment.l[i]), out + 16);
    std::copy_n(tile.segment.o + size_t{i} * tile.padded, tile.padded, out + 32);
  }
}

// Writes the result of query i of the tile, which is query `begin` + i of the call.
void finish(const AttentionCall& call, const Tile& tile, uint32_t begin, uint32_t i) {
  const uint32_t row = (begin + i) / call.group, head = (begin + i) % call.group;
  const float* o = tile.total.o + size_t{i} * tile.padded;
  float* out = call.out + row * call.out_stride + size_t{head} * call.value_dim;
  const float sum = tree_sum(load(tile.total.l[i]));
  float share = 1.0f / sum;
  if (call.sinks != nullptr) {
    const float m = tile.total.m[i], top = std::max(m, call.sinks[head]), c = exp1(m - top);
    share = c / std::fma(sum, c, exp1(call.sinks[head] - top));
  }
  const F16x inverse = set1(share);
  for (uint32_t d = 0; d < call.value_dim; d += 16) {
    const F16x value = load(o + d) * inverse;
    if (d + 16 <= call.value_dim) {
      store(value, out + d);
    } else {
      store_first(value, out + d, call.value_dim - d);
    }
  }
}

// body(tile, begin, count) for the queries of a call, a tile at a time.
template <typename Body>
void for_tiles(const AttentionCall& call, const Body& body) {
  Tile tile;
  const uint32_t queries = call.rows * call.group;
  for (uint32_t begin = 0; begin < queries; begin += kTile) {
    fill_tile(call, begin, std::min(kTile, queries - begin), tile);
    reset(tile.total, tile);
    body(tile, begin);
  }
}

void attention(const AttentionCall& call) {
  for_tiles(call, [&](Tile& tile, uint32_t begin) HWY_ATTR {
    if (call.partial != nullptr) {
      for (uint32_t s = call.segment_begin; s < call.segment_end; ++s) {
        attend_segment(call, tile, s);
        put_partials(call, tile, s, begin);
      }
      return;
    }
    const uint32_t segments = tile.position[tile.count - 1] / (kKvTokens * kSegmentBlocks) + 1;
    for (uint32_t s = tile.from[0] / (kKvTokens * kSegmentBlocks); s < segments; ++s) {
      attend_segment(call, tile, s);
      for (uint32_t i = 0; i < tile.count; ++i) merge(view(tile.segment, i, tile.padded), i, tile.padded, tile.total);
    }
    for (uint32_t i = 0; i < tile.count; ++i) finish(call, tile, begin, i);
  });
}

void merge_attention(const AttentionCall& call) {
  for_tiles(call, [&](Tile& tile, uint32_t begin) HWY_ATTR {
    for (uint32_t i = 0; i < tile.count; ++i) {
      for (uint32_t s = call.segment_begin; s < call.segment_end; ++s) {
        const float* state = partial_at(call, s, begin + i);
        merge({state[0], state[1] == 0.0f, state + 16, state + 32}, i, tile.padded, tile.total);
      }
      finish(call, tile, begin, i);
    }
  });
}

AttentionFunctions attention_functions() { return {&attention, &merge_attention, &ref::store_kv}; }
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
