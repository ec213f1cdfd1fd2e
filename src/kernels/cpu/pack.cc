// Packing of the types whose packed form holds the stored bits in another order: no number is read, words of 16 rows only
// change places. And of floats that are quantised on the way: those are made stored blocks first. What a panel takes from memory and gives to it is the cost, so a tile of the panel is made in the first
// cache, the source of the next tile is asked for meanwhile, and the tile goes out past the caches: what a load packs now is
// not read before everything is packed.
#include "kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/pack.cc"
#include "hwy/foreach_target.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "hwy/cache_control.h"
#include "hwy/highway.h"
#include "kernels/cpu/backend.h"
#include "tensor/half.h"

HWY_BEFORE_NAMESPACE();
namespace shoal {
namespace HWY_NAMESPACE {
#if SHOAL_PORTABLE_TARGET
PackFunction panel_packer() { return nullptr; }
#else
namespace hn = hwy::HWY_NAMESPACE;

constexpr hn::FixedTag<uint8_t, 16> kBytes;
constexpr hn::FixedTag<uint16_t, 8> kHalves;
constexpr hn::FixedTag<uint32_t, 4> kWords;
constexpr hn::FixedTag<uint64_t, 2> kPairs;
using Bytes = hn::Vec<decltype(kBytes)>;
using Words = hn::Vec<decltype(kWords)>;

constexpr size_t kTileBytes = 12288;  // of a panel: with the rows it is made from less than a first cache
constexpr size_t kLine = 4 * kPanelRows;  // bytes: a word of each row

HWY_INLINE Bytes load(const uint8_t* p) { return hn::LoadU(kBytes, p); }

// Four rows of four words become four columns: word w of row i goes to out[w], place i.
HWY_INLINE void turn(const Bytes (&row)[4], Words (&out)[4]) {
  Words r[4];
  for (int i = 0; i < 4; ++i) r[i] = hn::BitCast(kWords, row[i]);
  const auto low01 = hn::BitCast(kPairs, hn::InterleaveLower(kWords, r[0], r[1]));
  const auto low23 = hn::BitCast(kPairs, hn::InterleaveLower(kWords, r[2], r[3]));
  const auto high01 = hn::BitCast(kPairs, hn::InterleaveUpper(kWords, r[0], r[1]));
  const auto high23 = hn::BitCast(kPairs, hn::InterleaveUpper(kWords, r[2], r[3]));
  out[0] = hn::BitCast(kWords, hn::InterleaveLower(kPairs, low01, low23));
  out[1] = hn::BitCast(kWords, hn::InterleaveUpper(kPairs, low01, low23));
  out[2] = hn::BitCast(kWords, hn::InterleaveLower(kPairs, high01, high23));
  out[3] = hn::BitCast(kWords, hn::InterleaveUpper(kPairs, high01, high23));
}

// As turn(), to lines that are kLine bytes apart. `to` is the first line at the first of the four rows.
HWY_INLINE void put_turned(const Bytes (&row)[4], uint8_t* to) {
  Words out[4];
  turn(row, out);
  for (int w = 0; w < 4; ++w) hn::StoreU(hn::BitCast(kBytes, out[w]), kBytes, to + w * kLine);
}

// The f16 at `offset` of four rows, side by side.
HWY_INLINE void put_halves(const uint8_t* const (&row)[4], size_t offset, uint8_t* to) {
  for (int i = 0; i < 4; ++i) std::memcpy(to + 2 * i, row[i] + offset, 2);
}

// Four rows of 16 bytes become 16 words of a byte of each row; word j goes to `to(j)`.
template <typename Place>
HWY_INLINE void put_bytes(const Bytes (&row)[4], const Place& to) {
  const auto low01 = hn::BitCast(kHalves, hn::InterleaveLower(kBytes, row[0], row[1]));
  const auto low23 = hn::BitCast(kHalves, hn::InterleaveLower(kBytes, row[2], row[3]));
  const auto high01 = hn::BitCast(kHalves, hn::InterleaveUpper(kBytes, row[0], row[1]));
  const auto high23 = hn::BitCast(kHalves, hn::InterleaveUpper(kBytes, row[2], row[3]));
  HWY_ALIGN uint16_t words[32];
  hn::Store(hn::InterleaveLower(kHalves, low01, low23), kHalves, words);
  hn::Store(hn::InterleaveUpper(kHalves, low01, low23), kHalves, words + 8);
  hn::Store(hn::InterleaveLower(kHalves, high01, high23), kHalves, words + 16);
  hn::Store(hn::InterleaveUpper(kHalves, high01, high23), kHalves, words + 24);
  for (size_t j = 0; j < 16; ++j) std::memcpy(to(j), words + 2 * j, 4);
}

// Each kind of block says how many bytes of a row it takes and of a panel it makes, how many rows it packs at once
// (a group) and how: rows point at the blocks, `to` at the packed one, `group` counts groups.

template <size_t kWordsOfRow>  // Q8_0, Q4_0: an f16, then words
struct ScaledBlock {
  static constexpr size_t kRows = 4, kColumns = 32, kStored = 2 + 4 * kWordsOfRow, kPacked = kLine * kWordsOfRow + 2 * kPanelRows;
  static HWY_INLINE void pack(const uint8_t* const (&row)[kRows], size_t group, uint8_t* to) {
    for (size_t w = 0; w < kWordsOfRow; w += 4) {
      const Bytes r[4] = {load(row[0] + 2 + 4 * w), load(row[1] + 2 + 4 * w), load(row[2] + 2 + 4 * w), load(row[3] + 2 + 4 * w)};
      put_turned(r, to + w * kLine + 16 * group);
    }
    put_halves(row, 0, to + kWordsOfRow * kLine + 8 * group);
  }
};

struct FloatBlock {  // F32
  static constexpr size_t kRows = 4, kColumns = 16, kStored = 64, kPacked = 16 * kLine;
  static HWY_INLINE void pack(const uint8_t* const (&row)[kRows], size_t group, uint8_t* to) {
    for (size_t at = 0; at < 64; at += 16) {
      const Bytes r[4] = {load(row[0] + at), load(row[1] + at), load(row[2] + at), load(row[3] + at)};
      put_turned(r, to + at / 4 * kLine + 16 * group);
    }
  }
};

struct HalfBlock {  // F16, BF16: eight rows of eight
  static constexpr size_t kRows = 8, kColumns = 32, kStored = 64, kPacked = 32 * kLine / 2;
  static HWY_INLINE void pack(const uint8_t* const (&row)[kRows], size_t group, uint8_t* to) {
    for (size_t at = 0; at < 64; at += 16) {
      Bytes low[4], high[4];  // of each four rows' words, two columns of halves: r0 r1 r2 r3 | r0 r1 r2 r3 in the end
      for (int half = 0; half < 2; ++half) {
        const uint8_t* const* r = row + 4 * half;
        const auto a = hn::BitCast(kHalves, load(r[0] + at)), b = hn::BitCast(kHalves, load(r[1] + at));
        const auto c = hn::BitCast(kHalves, load(r[2] + at)), d = hn::BitCast(kHalves, load(r[3] + at));
        const auto ab0 = hn::BitCast(kWords, hn::InterleaveLower(kHalves, a, b)), ab1 = hn::BitCast(kWords, hn::InterleaveUpper(kHalves, a, b));
        const auto cd0 = hn::BitCast(kWords, hn::InterleaveLower(kHalves, c, d)), cd1 = hn::BitCast(kWords, hn::InterleaveUpper(kHalves, c, d));
        Bytes(&out)[4] = half == 0 ? low : high;
        out[0] = hn::BitCast(kBytes, hn::InterleaveLower(kWords, ab0, cd0));
        out[1] = hn::BitCast(kBytes, hn::InterleaveUpper(kWords, ab0, cd0));
        out[2] = hn::BitCast(kBytes, hn::InterleaveLower(kWords, ab1, cd1));
        out[3] = hn::BitCast(kBytes, hn::InterleaveUpper(kWords, ab1, cd1));
      }
      for (size_t i = 0; i < 4; ++i) {
        const auto l = hn::BitCast(kPairs, low[i]), h = hn::BitCast(kPairs, high[i]);
        uint8_t* line = to + (at / 2 + 2 * i) * 32 + 16 * group;
        hn::StoreU(hn::BitCast(kBytes, hn::InterleaveLower(kPairs, l, h)), kBytes, line);
        hn::StoreU(hn::BitCast(kBytes, hn::InterleaveUpper(kPairs, l, h)), kBytes, line + 32);
      }
    }
  }
};

// 32 codes of 4 bits in the low, and 32 in the high halves of 32 bytes, as the bytes of kQ4_0's lines: code k beside
// code k + 16.
struct Nibbles {
  Bytes even[4], odd[4];
  HWY_INLINE void read(const uint8_t* const (&row)[4], size_t offset) {
    const Bytes mask = hn::Set(kBytes, uint8_t{0x0f});
    for (int i = 0; i < 4; ++i) {
      const Bytes a = load(row[i] + offset), b = load(row[i] + offset + 16);
      const Bytes b_up = hn::BitCast(kBytes, hn::ShiftLeft<4>(hn::BitCast(kHalves, b)));
      const Bytes a_down = hn::BitCast(kBytes, hn::ShiftRight<4>(hn::BitCast(kHalves, a)));
      even[i] = hn::Or(hn::And(mask, a), hn::AndNot(mask, b_up));
      odd[i] = hn::Or(hn::And(mask, a_down), hn::AndNot(mask, b));
    }
  }
};

struct Q4KBlock {  // d, dmin, 12 bytes of scales and mins, 128 of nibbles
  static constexpr size_t kRows = 4, kColumns = 256, kStored = 144, kPacked = 2368, kSub = 288;
  static HWY_INLINE void pack(const uint8_t* const (&row)[kRows], size_t group, uint8_t* to) {
    put_halves(row, 0, to + 8 * group);
    put_halves(row, 2, to + 32 + 8 * group);
    Bytes scales[4];  // eight scales, eight mins
    for (size_t i = 0; i < 4; ++i) {
      uint32_t a, b, c;  // six bits each: scales 0..3, mins 0..3 and the low halves of 4..7, whose high bits are in a and b
      std::memcpy(&a, row[i] + 4, 4);
      std::memcpy(&b, row[i] + 8, 4);
      std::memcpy(&c, row[i] + 12, 4);
      const uint32_t words[4] = {a & 0x3f3f3f3fu, (c & 0x0f0f0f0fu) | (a >> 2 & 0x30303030u),
                                 b & 0x3f3f3f3fu, (c >> 4 & 0x0f0f0f0fu) | (b >> 2 & 0x30303030u)};
      scales[i] = hn::BitCast(kBytes, hn::LoadU(kWords, words));
    }
    put_bytes(scales, [&](size_t j) { return to + 64 + j % 8 * kSub + j / 8 * 16 + 4 * group; });
    for (size_t pair = 0; pair < 4; ++pair) {
      Nibbles nibbles;
      nibbles.read(row, 16 + 32 * pair);
      uint8_t* lines = to + 64 + 2 * pair * kSub + 32 + 16 * group;
      put_turned(nibbles.even, lines);
      put_turned(nibbles.odd, lines + kSub);
    }
  }
};

struct Q6KBlock {  // 128 bytes of low nibbles, 64 of high bits, 16 scales, d
  static constexpr size_t kRows = 4, kColumns = 256, kStored = 210, kPacked = 3360, kSub = 416;
  static HWY_INLINE void pack(const uint8_t* const (&row)[kRows], size_t group, uint8_t* to) {
    put_halves(row, 208, to + 8 * group);
    const Bytes scales[4] = {load(row[0] + 192), load(row[1] + 192), load(row[2] + 192), load(row[3] + 192)};
    put_bytes(scales, [&](size_t j) { return to + 32 + j / 2 * kSub + j % 2 * 16 + 4 * group; });
    for (size_t half = 0; half < 2; ++half) {
      uint8_t* subs = to + 32 + 4 * half * kSub + 32 + 16 * group;
      for (size_t quarter = 0; quarter < 2; ++quarter) {
        Nibbles nibbles;
        nibbles.read(row, 64 * half + 32 * quarter);
        put_turned(nibbles.even, subs + quarter * kSub);
        put_turned(nibbles.odd, subs + (quarter + 2) * kSub);
      }
      put_high_bits(row, 128 + 32 * half, subs + 256);
    }
  }

  // Bits 2q..2q+1 of byte k of 32 are those of code k of quarter q. In a line's byte k bits 2s..2s+1 are those of code
  // k + 8 s. So the four bytes k, k + 8, k + 16, k + 24 are a square of four by four pairs of bits, which is turned.
  static HWY_INLINE void put_high_bits(const uint8_t* const (&row)[4], size_t offset, uint8_t* to) {
    Words w[8];
    for (size_t part = 0; part < 2; ++part) {
      const Bytes r[4] = {load(row[0] + offset + 16 * part), load(row[1] + offset + 16 * part),
                          load(row[2] + offset + 16 * part), load(row[3] + offset + 16 * part)};
      Words out[4];
      turn(r, out);
      for (size_t i = 0; i < 4; ++i) w[4 * part + i] = out[i];
    }
    const Words odd_pairs = hn::Set(kWords, 0x33333333u), low_halves = hn::Set(kWords, 0x0f0f0f0fu);
    for (size_t line = 0; line < 2; ++line) {
      const Words a = w[line], b = w[line + 2], c = w[line + 4], d = w[line + 6];
      const Words ab0 = hn::Or(hn::And(odd_pairs, a), hn::ShiftLeft<2>(hn::And(odd_pairs, b)));
      const Words ab1 = hn::Or(hn::And(odd_pairs, hn::ShiftRight<2>(a)), hn::AndNot(odd_pairs, b));
      const Words cd0 = hn::Or(hn::And(odd_pairs, c), hn::ShiftLeft<2>(hn::And(odd_pairs, d)));
      const Words cd1 = hn::Or(hn::And(odd_pairs, hn::ShiftRight<2>(c)), hn::AndNot(odd_pairs, d));
      const Words quarters[4] = {hn::Or(hn::And(low_halves, ab0), hn::ShiftLeft<4>(hn::And(low_halves, cd0))),
                                 hn::Or(hn::And(low_halves, ab1), hn::ShiftLeft<4>(hn::And(low_halves, cd1))),
                                 hn::Or(hn::And(low_halves, hn::ShiftRight<4>(ab0)), hn::AndNot(low_halves, cd0)),
                                 hn::Or(hn::And(low_halves, hn::ShiftRight<4>(ab1)), hn::AndNot(low_halves, cd1))};
      for (size_t q = 0; q < 4; ++q) hn::StoreU(hn::BitCast(kBytes, quarters[q]), kBytes, to + q * kSub + line * kLine);
    }
  }
};

// Past the caches, unless what it writes is read soon. `bytes` is a multiple of 32.
HWY_INLINE void put_out(const uint8_t* from, size_t bytes, bool read_soon, uint8_t* to) {
  const hn::CappedTag<uint8_t, 32> d;
  if (read_soon || reinterpret_cast<uintptr_t>(to) % 32 != 0) {
    std::memcpy(to, from, bytes);
    return;
  }
  for (size_t at = 0; at < bytes; at += hn::MaxLanes(d)) hn::Stream(hn::Load(d, from + at), d, to + at);
}

template <typename Block>
void pack_blocks(const PanelSource& source, uint8_t* panel) {
  constexpr size_t kTileMax = std::max<size_t>(1, kTileBytes / Block::kPacked);  // blocks
  alignas(64) uint8_t tile[kTileMax * Block::kPacked];
  const size_t blocks = source.columns / Block::kColumns, row_bytes = blocks * Block::kStored;
  const size_t tiles = (blocks + kTileMax - 1) / kTileMax;  // of about the same size
  const auto begin_of = [&](size_t t) { return t * blocks / tiles; };
  for (size_t t = 0; t < tiles; ++t) {
    const size_t begin = begin_of(t), count = begin_of(t + 1) - begin;
    // The next tile of these rows is behind this one, or at the beginning of the next panel's rows.
    const size_t ahead = t + 1 < tiles ? count * Block::kStored : kPanelRows * row_bytes - begin * Block::kStored;
    const size_t ahead_bytes = count * Block::kStored;
    for (size_t group = 0; group < kPanelRows / Block::kRows; ++group) {
      const uint8_t* row[Block::kRows];
      for (size_t i = 0; i < Block::kRows; ++i) {
        row[i] = reinterpret_cast<const uint8_t*>(source.rows[group * Block::kRows + i]) + begin * Block::kStored;
        for (size_t at = 0; at < ahead_bytes; at += 64) __builtin_prefetch(row[i] + ahead + at, 0, 2);
      }
      for (size_t block = 0; block < count; ++block) {
        Block::pack(row, group, tile + block * Block::kPacked);
        for (const uint8_t*& r : row) r += Block::kStored;
      }
    }
    put_out(tile, count * Block::kPacked, source.read_soon, panel + begin * Block::kPacked);
  }
  hwy::FlushStream();
}

using DF = hn::CappedTag<float, 16>;
constexpr DF kFloats;
constexpr hn::RebindToSigned<DF> kInts;
constexpr size_t kLanes = hn::MaxLanes(kFloats), kVectors = kQuantBlock / kLanes;

HWY_INLINE void load_block(DType type, const std::byte* from, hn::Vec<DF> (&x)[kVectors]) {
  for (size_t i = 0; i < kVectors; ++i) {
    if (type == DType::kF32) {
      x[i] = hn::LoadU(kFloats, reinterpret_cast<const float*>(from) + i * kLanes);
      continue;
    }
    const hn::Rebind<uint16_t, DF> d16;
    const auto halves = hn::LoadU(d16, reinterpret_cast<const uint16_t*>(from) + i * kLanes);
    if (type == DType::kBF16) {
      x[i] = hn::BitCast(kFloats, hn::ShiftLeft<16>(hn::PromoteTo(hn::RebindToUnsigned<DF>(), halves)));
    } else {
      x[i] = hn::PromoteTo(kFloats, hn::BitCast(hn::Rebind<hwy::float16_t, DF>(), halves));
    }
  }
}

// The element of largest magnitude; of several the first. NaN is none; no number at all is 0.
HWY_INLINE float extreme_of(const hn::Vec<DF> (&x)[kVectors]) {
  const auto no_number = hn::Set(kInts, 0x7f800001);
  hn::Vec<decltype(kInts)> magnitude[kVectors], most = hn::Zero(kInts);  // the bits of positive floats are in their order
  for (size_t i = 0; i < kVectors; ++i) {
    const auto bits = hn::BitCast(kInts, hn::Abs(x[i]));
    magnitude[i] = hn::IfThenElseZero(hn::Lt(bits, no_number), bits);
    most = hn::Max(most, magnitude[i]);
  }
  most = hn::MaxOfLanes(kInts, most);
  if (hn::GetLane(most) == 0) return 0.0f;
  for (size_t i = 0; i < kVectors; ++i) {
    const intptr_t at = hn::FindFirstTrue(kInts, hn::Eq(magnitude[i], most));
    if (at < 0) continue;
    HWY_ALIGN float lanes[kLanes];
    hn::Store(x[i], kFloats, lanes);
    return lanes[at];
  }
  return 0.0f;
}

// One row's block of 32 numbers as a stored Q8_0 or Q4_0 block; pack.h has the formulas.
HWY_INLINE void quantize_block(DType type, bool eight_bits, const std::byte* from, uint8_t* to) {
  hn::Vec<DF> x[kVectors];
  load_block(type, from, x);
  const float extreme = extreme_of(x);
  const uint16_t d = f16_from_f32(eight_bits ? std::fabs(extreme) / 127.0f : extreme / -8.0f);
  const float scale = f32_from_f16(d);
  const float inverse = scale != 0 && std::isfinite(scale) ? 1.0f / scale : 0.0f;
  const auto low = hn::Set(kFloats, eight_bits ? -127.0f : -8.0f), high = hn::Set(kFloats, eight_bits ? 127.0f : 7.0f);
  int8_t q[kQuantBlock];
  for (size_t i = 0; i < kVectors; ++i) {
    const auto scaled = hn::Mul(x[i], hn::Set(kFloats, inverse));
    const auto clamped = hn::IfThenElse(hn::Ge(scaled, low), hn::Min(scaled, high), low);  // NaN becomes `low`
    hn::StoreU(hn::DemoteTo(hn::Rebind<int8_t, DF>(), hn::NearestInt(clamped)), hn::Rebind<int8_t, DF>(), q + i * kLanes);
  }
  std::memcpy(to, &d, 2);
  if (eight_bits) {
    std::memcpy(to + 2, q, 32);
  } else {
    for (int k = 0; k < 16; ++k) to[2 + k] = static_cast<uint8_t>(((q[k] + 8) & 0xf) | ((q[k + 16] + 8) & 0xf) << 4);
  }
}

// Floats to Q8_0 or Q4_0: a stretch of the rows is quantised as a file would store it, then packed.
template <typename Block>
void pack_quantizing(const PanelSource& source, uint8_t* panel) {
  constexpr size_t kStretch = 32;  // blocks
  constexpr bool kEightBits = Block::kStored == 34;
  uint8_t stored[kPanelRows][kStretch * Block::kStored];
  const std::byte* rows[kPanelRows];
  for (size_t row = 0; row < kPanelRows; ++row) rows[row] = reinterpret_cast<const std::byte*>(stored[row]);
  const size_t bytes = source.dtype == DType::kF32 ? 4 : 2, blocks = source.columns / kQuantBlock;
  for (size_t begin = 0; begin < blocks; begin += kStretch) {
    const size_t count = std::min(blocks - begin, kStretch);
    for (size_t row = 0; row < kPanelRows; ++row) {
      const std::byte* from = source.rows[row] + begin * kQuantBlock * bytes;
      for (size_t b = 0; b < count; ++b) quantize_block(source.dtype, kEightBits, from + b * kQuantBlock * bytes, stored[row] + b * Block::kStored);
    }
    pack_blocks<Block>({kEightBits ? DType::kQ8_0 : DType::kQ4_0, rows, count * kQuantBlock, {}, 0, source.read_soon}, panel + begin * Block::kPacked);
  }
}

bool pack_in_order(const PanelSource& source, WeightFormat format, std::byte* out) {
  uint8_t* panel = reinterpret_cast<uint8_t*>(out);
  const bool halves = (source.dtype == DType::kBF16 && format == WeightFormat::kBF16) ||
                      (source.dtype == DType::kF16 && format == WeightFormat::kF16);
  const bool floats = source.dtype == DType::kF32 && format == WeightFormat::kF32;
  if (source.rows.size() < kPanelRows || !source.row_scales.empty()) return false;
  const bool numbers = source.dtype == DType::kF32 || source.dtype == DType::kF16 || source.dtype == DType::kBF16;
  if (numbers && format == WeightFormat::kQ8_0) return pack_quantizing<ScaledBlock<8>>(source, panel), true;
  if (numbers && format == WeightFormat::kQ4_0) return pack_quantizing<ScaledBlock<4>>(source, panel), true;
  if (halves && source.columns % HalfBlock::kColumns == 0) return pack_blocks<HalfBlock>(source, panel), true;
  if (floats && source.columns % FloatBlock::kColumns == 0) return pack_blocks<FloatBlock>(source, panel), true;
  switch (source.dtype) {
    case DType::kQ8_0: return pack_blocks<ScaledBlock<8>>(source, panel), true;
    case DType::kQ4_0: return pack_blocks<ScaledBlock<4>>(source, panel), true;
    case DType::kQ4_K: return pack_blocks<Q4KBlock>(source, panel), true;
    case DType::kQ6_K: return pack_blocks<Q6KBlock>(source, panel), true;
    default: return false;
  }
}

PackFunction panel_packer() { return &pack_in_order; }
#endif  // SHOAL_PORTABLE_TARGET
}  // namespace HWY_NAMESPACE
}  // namespace shoal
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace shoal {
HWY_EXPORT(panel_packer);
PackFunction chosen_panel_packer() { return HWY_DYNAMIC_DISPATCH(panel_packer)(); }
}  // namespace shoal
#endif
