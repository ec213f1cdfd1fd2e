// Blocks of sixteen rows and how they become lines of a panel, for each type that is packed without reading its numbers.
// What a panel takes from memory and gives to it is the cost: sixteen rows are read side by side, asked for ahead, and lines
// go out in the order of the panel.
#if defined(SHOAL_KERNELS_CPU_PACK_BLOCKS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SHOAL_KERNELS_CPU_PACK_BLOCKS_INL_H_
#undef SHOAL_KERNELS_CPU_PACK_BLOCKS_INL_H_
#else
#define SHOAL_KERNELS_CPU_PACK_BLOCKS_INL_H_
#endif

#include <cstdint>
#include <cstring>

#include "hwy/highway.h"
#include "kernels/cpu/backend.h"

HWY_BEFORE_NAMESPACE();
namespace shoal {
namespace HWY_NAMESPACE {
#if !SHOAL_PORTABLE_TARGET
namespace hn = hwy::HWY_NAMESPACE;

constexpr hn::FixedTag<uint8_t, 16> kBytes;
using Bytes = hn::Vec<decltype(kBytes)>;

// What the registers hold: sixteen bytes of one row, or of two.
constexpr hn::CappedTag<uint8_t, 32> kWide;
using Wide = hn::Vec<decltype(kWide)>;
constexpr hn::Repartition<uint16_t, decltype(kWide)> kHalves;
constexpr hn::Repartition<uint32_t, decltype(kWide)> kWords;
constexpr hn::Repartition<uint64_t, decltype(kWide)> kPairs;
constexpr size_t kWideBytes = hn::MaxLanes(kWide);
constexpr size_t kRowsOfWide = kWideBytes / 16, kWidesOfLine = 64 / kWideBytes;  // a line: four bytes of each row

HWY_INLINE Bytes load(const uint8_t* p) { return hn::LoadU(kBytes, p); }
HWY_INLINE Wide from_halves(hn::Vec<decltype(kHalves)> v) { return hn::BitCast(kWide, v); }
HWY_INLINE Wide from_words(hn::Vec<decltype(kWords)> v) { return hn::BitCast(kWide, v); }
HWY_INLINE auto as_halves(Wide v) { return hn::BitCast(kHalves, v); }
HWY_INLINE auto as_words(Wide v) { return hn::BitCast(kWords, v); }

// Two halves of a register; where one holds only the first, that.
template <typename Half>
HWY_INLINE Wide join(Half first, Half second) {
  if constexpr (kRowsOfWide == 2) return hn::Combine(kWide, second, first);
  else return first;
}
HWY_INLINE Bytes bytes_of(uint64_t first, uint64_t second) {
  constexpr hn::FixedTag<uint64_t, 2> two;
  return hn::BitCast(kBytes, hn::InterleaveLower(two, hn::Set(two, first), hn::Set(two, second)));
}

// Where a block of each of the sixteen rows of a panel lies.
struct Rows {
  const uint8_t* first;
  size_t stride;
  HWY_INLINE const uint8_t* at(size_t row) const { return first + row * stride; }
  // Sixteen bytes at `offset` of `row` and, if two fit, of `row + apart`.
  HWY_INLINE Wide load(size_t row, size_t apart, size_t offset) const {
    return join(HWY_NAMESPACE::load(at(row) + offset), HWY_NAMESPACE::load(at(row + (kRowsOfWide - 1) * apart) + offset));
  }
};

// Asks for as much as a block of every row, of what is read later. Rows are read side by side, which hardware does not foresee.
struct Ahead {
  Rows rows;
  bool in_one;  // what comes is asked for in the order of memory, not row by row
  template <size_t kStored>
  HWY_INLINE void ask(size_t part, size_t parts) const {
    constexpr size_t kLines = (kPanelRows * kStored + 63) / 64;
    if (in_one) {
      for (size_t line = kLines * part / parts; line < kLines * (part + 1) / parts; ++line) __builtin_prefetch(rows.first + 64 * line, 0, 2);
      return;
    }
    for (size_t row = kPanelRows * part / parts; row < kPanelRows * (part + 1) / parts; ++row) {
      for (size_t at = 0; at < kStored; at += 64) __builtin_prefetch(rows.at(row) + at, 0, 3);
    }
  }
};

// A panel is written from its beginning to its end, past the caches or into them.
template <bool kPast>
struct Out {
  uint8_t* to;
  HWY_INLINE void put(Wide v) {
    if constexpr (kPast) hn::Stream(v, kWide, to);
    else hn::StoreU(v, kWide, to);
    to += kWideBytes;
  }
  HWY_INLINE void put(Bytes first, Bytes second) {
    if constexpr (kRowsOfWide == 2) {
      put(join(first, second));
    } else {
      put(join(first, first));
      put(join(second, second));
    }
  }
};

// Sixteen bytes of each of the sixteen rows as four lines.
struct Square {
  Wide v[kWidesOfLine][4];
  HWY_INLINE void load(const Rows& rows, size_t offset) {
    for (size_t g = 0; g < kWidesOfLine; ++g) {
      for (size_t i = 0; i < 4; ++i) v[g][i] = rows.load(4 * kRowsOfWide * g + i, 4, offset);
    }
  }
  // Afterwards v[g][w] is the g-th part of line w.
  HWY_INLINE void turn() {
    for (size_t g = 0; g < kWidesOfLine; ++g) {
      const auto a = as_words(v[g][0]), b = as_words(v[g][1]), c = as_words(v[g][2]), d = as_words(v[g][3]);
      const auto low01 = hn::BitCast(kPairs, hn::InterleaveLower(kWords, a, b)), low23 = hn::BitCast(kPairs, hn::InterleaveLower(kWords, c, d));
      const auto high01 = hn::BitCast(kPairs, hn::InterleaveUpper(kWords, a, b)), high23 = hn::BitCast(kPairs, hn::InterleaveUpper(kWords, c, d));
      v[g][0] = hn::BitCast(kWide, hn::InterleaveLower(kPairs, low01, low23));
      v[g][1] = hn::BitCast(kWide, hn::InterleaveUpper(kPairs, low01, low23));
      v[g][2] = hn::BitCast(kWide, hn::InterleaveLower(kPairs, high01, high23));
      v[g][3] = hn::BitCast(kWide, hn::InterleaveUpper(kPairs, high01, high23));
    }
  }
  template <typename To>
  HWY_INLINE void put(To& out) {
    turn();
    for (size_t w = 0; w < 4; ++w) {
      for (size_t g = 0; g < kWidesOfLine; ++g) out.put(v[g][w]);
    }
  }
};

// The f16 at `offset` of every row.
template <typename To>
HWY_INLINE void put_halves(const Rows& rows, size_t offset, To& out) {
  const auto four = [&](size_t row) HWY_ATTR {
    uint64_t y = 0;
    for (size_t i = 0; i < 4; ++i) {
      uint16_t half;
      std::memcpy(&half, rows.at(row + i) + offset, 2);
      y |= uint64_t{half} << (16 * i);
    }
    return y;
  };
  out.put(bytes_of(four(0), four(4)), bytes_of(four(8), four(12)));
}

// Each kind of block says how many bytes of a row it takes and of a panel it makes, and how.

template <size_t kWordsOfRow>  // Q8_0, Q4_0: an f16, then words
struct ScaledBlock {
  static constexpr size_t kColumns = 32, kStored = 2 + 4 * kWordsOfRow, kPacked = 64 * kWordsOfRow + 2 * kPanelRows, kAhead = 192;
  template <typename To>
  static HWY_INLINE void pack(const Rows& rows, const Ahead& ahead, To& out) {
    for (size_t w = 0; w < kWordsOfRow; w += 4) {
      Square square;
      square.load(rows, 2 + 4 * w);
      square.put(out);
    }
    ahead.ask<kStored>(0, 1);
    put_halves(rows, 0, out);
  }
};

struct FloatBlock {  // F32
  static constexpr size_t kColumns = 16, kStored = 64, kPacked = 16 * 64, kAhead = 192;
  template <typename To>
  static HWY_INLINE void pack(const Rows& rows, const Ahead& ahead, To& out) {
    for (size_t at = 0; at < 64; at += 16) {
      ahead.ask<kStored>(at / 16, 4);
      Square square;
      square.load(rows, at);
      square.put(out);
    }
  }
};

struct HalfBlock {  // F16, BF16: a line holds two columns
  static constexpr size_t kColumns = 32, kStored = 64, kPacked = 32 * 32, kAhead = 192;
  template <typename To>
  static HWY_INLINE void pack(const Rows& rows, const Ahead& ahead, To& out) {
    for (size_t at = 0; at < 64; at += 16) {
      ahead.ask<kStored>(at / 16, 4);
      constexpr size_t kParts = 2 / kRowsOfWide;  // of a column
      Wide columns[kParts][8];
      for (size_t g = 0; g < kParts; ++g) {
        Wide v[8], pairs[8], fours[8];
        for (size_t i = 0; i < 8; ++i) v[i] = rows.load(8 * g + i, 8, at);
        for (size_t i = 0; i < 8; i += 2) {  // rows i, i + 1: columns 0..3, columns 4..7
          pairs[i] = from_halves(hn::InterleaveLower(kHalves, as_halves(v[i]), as_halves(v[i + 1])));
          pairs[i + 1] = from_halves(hn::InterleaveUpper(kHalves, as_halves(v[i]), as_halves(v[i + 1])));
        }
        for (size_t i = 0; i < 8; i += 4) {  // rows i..i + 3: columns 0 and 1, 2 and 3, 4 and 5, 6 and 7
          for (size_t j = 0; j < 2; ++j) {
            fours[i + 2 * j] = from_words(hn::InterleaveLower(kWords, as_words(pairs[i + j]), as_words(pairs[i + 2 + j])));
            fours[i + 2 * j + 1] = from_words(hn::InterleaveUpper(kWords, as_words(pairs[i + j]), as_words(pairs[i + 2 + j])));
          }
        }
        for (size_t j = 0; j < 4; ++j) {
          const auto low = hn::BitCast(kPairs, fours[j]), high = hn::BitCast(kPairs, fours[4 + j]);
          columns[g][2 * j] = hn::BitCast(kWide, hn::InterleaveLower(kPairs, low, high));
          columns[g][2 * j + 1] = hn::BitCast(kWide, hn::InterleaveUpper(kPairs, low, high));
        }
      }
      for (size_t c = 0; c < 8; ++c) {
        for (size_t g = 0; g < kParts; ++g) out.put(columns[g][c]);
      }
    }
  }
};

// Of 32 codes of 4 bits in the low halves of 32 bytes (kHigh: in the high ones) the bytes of kQ4_0's lines: code k beside
// code k + 16.
template <bool kHigh>
HWY_INLINE void load_nibbles(const Rows& rows, size_t offset, Square& square) {
  const Wide mask = hn::Set(kWide, uint8_t{0x0f});
  for (size_t g = 0; g < kWidesOfLine; ++g) {
    for (size_t i = 0; i < 4; ++i) {
      const size_t row = 4 * kRowsOfWide * g + i;
      const Wide a = rows.load(row, 4, offset), b = rows.load(row, 4, offset + 16);
      const Wide moved = kHigh ? from_halves(hn::ShiftRight<4>(as_halves(a))) : from_halves(hn::ShiftLeft<4>(as_halves(b)));
      square.v[g][i] = kHigh ? hn::Or(hn::And(mask, moved), hn::AndNot(mask, b)) : hn::Or(hn::And(mask, a), hn::AndNot(mask, moved));
    }
  }
}

// bytes[j] is byte j of every row, from the sixteen that `of_row` gives of each.
template <typename OfRow>
HWY_INLINE void turn_bytes(const OfRow& of_row, Bytes (&bytes)[16]) {
  static constexpr hn::FixedTag<uint16_t, 8> halves;
  static constexpr hn::FixedTag<uint32_t, 4> words;
  static constexpr hn::FixedTag<uint64_t, 2> pairs;
  const auto h = [](Bytes v) HWY_ATTR { return hn::BitCast(halves, v); };
  const auto w = [](Bytes v) HWY_ATTR { return hn::BitCast(words, v); };
  const auto p = [](Bytes v) HWY_ATTR { return hn::BitCast(pairs, v); };
  Bytes of_four[4][4];  // word j of [g][q]: byte 4 q + j of rows 4 g..4 g + 3
  for (size_t g = 0; g < 4; ++g) {
    const Bytes a = of_row(4 * g), b = of_row(4 * g + 1), c = of_row(4 * g + 2), d = of_row(4 * g + 3);
    const Bytes ab0 = hn::InterleaveLower(kBytes, a, b), ab1 = hn::InterleaveUpper(kBytes, a, b);
    const Bytes cd0 = hn::InterleaveLower(kBytes, c, d), cd1 = hn::InterleaveUpper(kBytes, c, d);
    of_four[g][0] = hn::BitCast(kBytes, hn::InterleaveLower(halves, h(ab0), h(cd0)));
    of_four[g][1] = hn::BitCast(kBytes, hn::InterleaveUpper(halves, h(ab0), h(cd0)));
    of_four[g][2] = hn::BitCast(kBytes, hn::InterleaveLower(halves, h(ab1), h(cd1)));
    of_four[g][3] = hn::BitCast(kBytes, hn::InterleaveUpper(halves, h(ab1), h(cd1)));
  }
  for (size_t q = 0; q < 4; ++q) {
    const Bytes low01 = hn::BitCast(kBytes, hn::InterleaveLower(words, w(of_four[0][q]), w(of_four[1][q])));
    const Bytes low23 = hn::BitCast(kBytes, hn::InterleaveLower(words, w(of_four[2][q]), w(of_four[3][q])));
    const Bytes high01 = hn::BitCast(kBytes, hn::InterleaveUpper(words, w(of_four[0][q]), w(of_four[1][q])));
    const Bytes high23 = hn::BitCast(kBytes, hn::InterleaveUpper(words, w(of_four[2][q]), w(of_four[3][q])));
    bytes[4 * q] = hn::BitCast(kBytes, hn::InterleaveLower(pairs, p(low01), p(low23)));
    bytes[4 * q + 1] = hn::BitCast(kBytes, hn::InterleaveUpper(pairs, p(low01), p(low23)));
    bytes[4 * q + 2] = hn::BitCast(kBytes, hn::InterleaveLower(pairs, p(high01), p(high23)));
    bytes[4 * q + 3] = hn::BitCast(kBytes, hn::InterleaveUpper(pairs, p(high01), p(high23)));
  }
}

struct Q4KBlock {  // d, dmin, 12 bytes of scales and mins, 128 of nibbles
  static constexpr size_t kColumns = 256, kStored = 144, kPacked = 2368, kAhead = 144;
  template <typename To>
  static HWY_INLINE void pack(const Rows& rows, const Ahead& ahead, To& out) {
    put_halves(rows, 0, out);
    put_halves(rows, 2, out);
    Bytes scales[16];  // eight scales, eight mins
    turn_bytes([&](size_t row) HWY_ATTR {
      // Six bits each: scales 0..3, mins 0..3 and the low halves of 4..7, whose high bits are in the first two words.
      uint64_t ab;
      uint32_t c;
      std::memcpy(&ab, rows.at(row) + 4, 8);
      std::memcpy(&c, rows.at(row) + 12, 4);
      const uint64_t low = ab & 0x3f3f3f3f3f3f3f3fu, high = ab >> 2 & 0x3030303030303030u;
      const uint64_t scale = uint64_t{c & 0x0f0f0f0fu} << 32 | high << 32 | (low & 0xffffffffu);
      const uint64_t min = uint64_t{c >> 4 & 0x0f0f0f0fu} << 32 | (high & 0xffffffff00000000u) | low >> 32;
      return bytes_of(scale, min);
    }, scales);
    for (size_t sub = 0; sub < 8; ++sub) {
      ahead.ask<kStored>(sub, 8);
      out.put(scales[sub], scales[8 + sub]);
      Square square;
      if (sub % 2 == 0) load_nibbles<false>(rows, 16 + 16 * sub, square);
      else load_nibbles<true>(rows, 16 * sub, square);
      square.put(out);
    }
  }
};

struct Q6KBlock {  // 128 bytes of low nibbles, 64 of high bits, 16 scales, d
  static constexpr size_t kColumns = 256, kStored = 210, kPacked = 3360, kAhead = 210;
  template <typename To>
  static HWY_INLINE void pack(const Rows& rows, const Ahead& ahead, To& out) {
    put_halves(rows, 208, out);
    Bytes scales[16];
    turn_bytes([&](size_t row) HWY_ATTR { return load(rows.at(row) + 192); }, scales);
    for (size_t half = 0; half < 2; ++half) {
      Wide high[4][2][kWidesOfLine];
      high_bits(rows, 128 + 32 * half, high);
      for (size_t quarter = 0; quarter < 4; ++quarter) {
        const size_t sub = 4 * half + quarter;
        ahead.ask<kStored>(sub, 8);
        out.put(scales[2 * sub], scales[2 * sub + 1]);
        Square square;
        const size_t nibbles = 64 * half + 32 * (quarter % 2);
        if (quarter < 2) load_nibbles<false>(rows, nibbles, square);
        else load_nibbles<true>(rows, nibbles, square);
        square.put(out);
        for (const auto& line : high[quarter]) {
          for (const Wide& part : line) out.put(part);
        }
      }
    }
  }

  // Bits 2q..2q+1 of byte k of 32 are those of code k of quarter q. In a line's byte k bits 2s..2s+1 are those of code
  // k + 8 s. So the four bytes k, k + 8, k + 16, k + 24 are a square of four by four pairs of bits, which is turned.
  static HWY_INLINE void high_bits(const Rows& rows, size_t offset, Wide (&high)[4][2][kWidesOfLine]) {
    Square low_half, high_half;  // of the 32 bytes
    low_half.load(rows, offset);
    low_half.turn();
    high_half.load(rows, offset + 16);
    high_half.turn();
    const Wide odd_pairs = hn::Set(kWide, uint8_t{0x33}), low_bits = hn::Set(kWide, uint8_t{0x0f});
    const auto up2 = [](Wide v) HWY_ATTR { return from_words(hn::ShiftLeft<2>(as_words(v))); };
    const auto down2 = [](Wide v) HWY_ATTR { return from_words(hn::ShiftRight<2>(as_words(v))); };
    const auto up4 = [](Wide v) HWY_ATTR { return from_words(hn::ShiftLeft<4>(as_words(v))); };
    const auto down4 = [](Wide v) HWY_ATTR { return from_words(hn::ShiftRight<4>(as_words(v))); };
    for (size_t line = 0; line < 2; ++line) {
      for (size_t g = 0; g < kWidesOfLine; ++g) {
        const Wide a = low_half.v[g][line], b = low_half.v[g][line + 2], c = high_half.v[g][line], d = high_half.v[g][line + 2];
        const Wide ab0 = hn::Or(hn::And(odd_pairs, a), up2(hn::And(odd_pairs, b)));
        const Wide ab1 = hn::Or(hn::And(odd_pairs, down2(a)), hn::AndNot(odd_pairs, b));
        const Wide cd0 = hn::Or(hn::And(odd_pairs, c), up2(hn::And(odd_pairs, d)));
        const Wide cd1 = hn::Or(hn::And(odd_pairs, down2(c)), hn::AndNot(odd_pairs, d));
        high[0][line][g] = hn::Or(hn::And(low_bits, ab0), up4(hn::And(low_bits, cd0)));
        high[1][line][g] = hn::Or(hn::And(low_bits, ab1), up4(hn::And(low_bits, cd1)));
        high[2][line][g] = hn::Or(hn::And(low_bits, down4(ab0)), hn::AndNot(low_bits, cd0));
        high[3][line][g] = hn::Or(hn::And(low_bits, down4(ab1)), hn::AndNot(low_bits, cd1));
      }
    }
  }
};

#endif  // !SHOAL_PORTABLE_TARGET
}  // namespace HWY_NAMESPACE
}  // namespace shoal
HWY_AFTER_NAMESPACE();

#endif  // include guard
