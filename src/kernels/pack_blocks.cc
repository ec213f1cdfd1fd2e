#include "kernels/pack_blocks.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace shoal {
namespace {

// Copies past the caches: what is packed now is not read before everything is packed. `to` is 16-byte aligned.
void stream_out(const std::byte* from, size_t bytes, std::byte* to) {
#if defined(__SSE2__)
  for (size_t at = 0; at < bytes; at += 16) {
    _mm_stream_si128(reinterpret_cast<__m128i*>(to + at), _mm_load_si128(reinterpret_cast<const __m128i*>(from + at)));
  }
#else
  std::memcpy(to, from, bytes);
#endif
}

// Makes what stream_out() wrote visible before whatever this thread writes next.
void end_streams() {
#if defined(__SSE2__)
  _mm_sfence();
#endif
}

// Words 0..3 (of 4 bytes) at rows[i] + offset go to to[0..3] + 4 * i, which are 64 bytes apart: a turn of 4 x 4 words.
void turn_words(const std::byte* const (&rows)[4], size_t offset, std::byte* to) {
#if defined(__SSE2__)
  __m128i r[4];
  for (int i = 0; i < 4; ++i) r[i] = _mm_loadu_si128(reinterpret_cast<const __m128i*>(rows[i] + offset));
  const __m128i low01 = _mm_unpacklo_epi32(r[0], r[1]), low23 = _mm_unpacklo_epi32(r[2], r[3]);
  const __m128i high01 = _mm_unpackhi_epi32(r[0], r[1]), high23 = _mm_unpackhi_epi32(r[2], r[3]);
  const __m128i out[4] = {_mm_unpacklo_epi64(low01, low23), _mm_unpackhi_epi64(low01, low23),
                          _mm_unpacklo_epi64(high01, high23), _mm_unpackhi_epi64(high01, high23)};
  for (int word = 0; word < 4; ++word) _mm_store_si128(reinterpret_cast<__m128i*>(to + 64 * word), out[word]);
#else
  for (size_t i = 0; i < 4; ++i) {
    for (size_t word = 0; word < 4; ++word) std::memcpy(to + 64 * word + 4 * i, rows[i] + offset + 4 * word, 4);
  }
#endif
}

// Q8_0 and Q4_0 as they are stored: a scale, then kWords words of 4 bytes, which only change places.
template <size_t kWords>
void pack_same_blocks(const PanelSource& source, std::byte* panel) {
  constexpr size_t kTile = 32;  // blocks made in the first cache before they go out
  constexpr size_t kStored = 2 + 4 * kWords, kPacked = 64 * kWords + 32;
  alignas(64) std::byte tile[kTile * kPacked];
  static constexpr std::byte kNoRow[kTile * kStored] = {};
  const size_t blocks = source.columns / 32;
  for (size_t begin = 0; begin < blocks; begin += kTile) {
    const size_t count = std::min(blocks - begin, kTile);
    for (size_t row = 0; row < kPanelRows; row += 4) {
      const std::byte* from[4];
      for (size_t i = 0; i < 4; ++i) {
        from[i] = row + i < source.rows.size() ? source.rows[row + i] + begin * kStored : kNoRow;
        for (size_t at = 0; at < kTile * kStored; at += 64) __builtin_prefetch(from[i] + kTile * kStored + at);
      }
      for (size_t block = 0; block < count; ++block) {
        std::byte* to = tile + block * kPacked;
        for (size_t word = 0; word < kWords; word += 4) turn_words(from, 2 + 4 * word, to + 64 * word + 4 * row);
        for (size_t i = 0; i < 4; ++i) {
          std::memcpy(to + 64 * kWords + 2 * (row + i), from[i], 2);
          from[i] += kStored;
        }
      }
    }
    stream_out(tile, count * kPacked, panel + begin * kPacked);
  }
  end_streams();
}

// The words of one row's nibbles or bits, 64 bytes apart.
template <size_t kWords>
void put_words(const uint8_t* from, std::byte* to) {
  for (size_t word = 0; word < kWords; ++word) std::memcpy(to + 64 * word, from + 4 * word, 4);
}

// Byte k: code k in the low half, code k + 16 in the high one.
void join_nibbles(const uint8_t* codes, uint8_t* out) {
  for (int k = 0; k < 16; ++k) out[k] = static_cast<uint8_t>((codes[k] & 0xf) | codes[k + 16] << 4);
}

// d, dmin, eight six-bit scales and mins in 12 bytes, 128 bytes of nibbles: 64 codes in each 32 bytes.
void pack_q4_k_block(const uint8_t* p, size_t row, std::byte* to) {
  constexpr size_t kSub = 288;
  std::memcpy(to + 2 * row, p, 2);
  std::memcpy(to + 32 + 2 * row, p + 2, 2);
  const uint8_t* scales = p + 4;
  for (size_t sub = 0; sub < 8; ++sub) {
    std::byte* at = to + 64 + sub * kSub;
    const bool early = sub < 4;
    const int scale = early ? scales[sub] & 63 : (scales[sub + 4] & 0xf) | (scales[sub - 4] >> 6) << 4;
    const int min = early ? scales[sub + 4] & 63 : (scales[sub + 4] >> 4) | (scales[sub] >> 6) << 4;
    at[row] = static_cast<std::byte>(scale);
    at[16 + row] = static_cast<std::byte>(min);
    const uint8_t* q = p + 16 + 32 * (sub / 2);
    uint8_t codes[32], joined[16];
    if (sub % 2 == 0) {
      std::memcpy(codes, q, 32);
    } else {
      for (int k = 0; k < 32; ++k) codes[k] = q[k] >> 4;
    }
    join_nibbles(codes, joined);
    put_words<4>(joined, at + 32 + 4 * row);
  }
}

// 128 bytes of low nibbles, 64 of high bits, 16 scales, d.
void pack_q6_k_block(const uint8_t* p, size_t row, std::byte* to) {
  constexpr size_t kSub = 416;
  std::memcpy(to + 2 * row, p + 208, 2);
  for (size_t sub = 0; sub < 8; ++sub) {
    std::byte* at = to + 32 + sub * kSub;
    at[row] = static_cast<std::byte>(p[192 + 2 * sub]);
    at[16 + row] = static_cast<std::byte>(p[192 + 2 * sub + 1]);
    const size_t half = sub / 4, quarter = sub % 4;
    const uint8_t* low = p + 64 * half + 32 * (quarter % 2);
    const uint8_t* high = p + 128 + 32 * half;
    uint8_t codes[32], bits[32], joined[16], high_joined[8];
    for (int k = 0; k < 32; ++k) codes[k] = static_cast<uint8_t>(low[k] >> (4 * (quarter / 2)));
    for (int k = 0; k < 32; ++k) bits[k] = (high[k] >> (2 * quarter)) & 3;
    join_nibbles(codes, joined);
    for (int k = 0; k < 8; ++k) high_joined[k] = static_cast<uint8_t>(bits[k] | bits[k + 8] << 2 | bits[k + 16] << 4 | bits[k + 24] << 6);
    put_words<4>(joined, at + 32 + 4 * row);
    put_words<2>(high_joined, at + 288 + 4 * row);
  }
}

// Super-blocks of 256 columns, made in the first cache one at a time. Missing rows stay zero.
template <size_t kStored, size_t kPacked>
void pack_super_blocks(const PanelSource& source, std::byte* panel, void (*pack)(const uint8_t*, size_t, std::byte*)) {
  alignas(64) std::byte block[kPacked] = {};
  for (size_t b = 0; b < source.columns / 256; ++b) {
    for (size_t row = 0; row < source.rows.size(); ++row) {
      const auto* from = reinterpret_cast<const uint8_t*>(source.rows[row]) + b * kStored;
      for (size_t at = 0; at < kStored; at += 64) __builtin_prefetch(from + 2 * kStored + at);
      pack(from, row, block);
    }
    stream_out(block, kPacked, panel + b * kPacked);
  }
  end_streams();
}

}  // namespace

bool pack_stored_blocks(const PanelSource& source, std::byte* panel) {
  switch (source.dtype) {
    case DType::kQ8_0: pack_same_blocks<8>(source, panel); return true;
    case DType::kQ4_0: pack_same_blocks<4>(source, panel); return true;
    case DType::kQ4_K: pack_super_blocks<144, 2368>(source, panel, pack_q4_k_block); return true;
    case DType::kQ6_K: pack_super_blocks<210, 3360>(source, panel, pack_q6_k_block); return true;
    default: return false;
  }
}

}  // namespace shoal
