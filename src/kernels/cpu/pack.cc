// Packing of the types whose packed form holds the stored bits in another order: no number is read, words of 16 rows only
// change places. And of floats that are quantised on the way: those are made stored blocks first.
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
#include "kernels/cpu/pack_blocks-inl.h"
#include "tensor/half.h"

HWY_BEFORE_NAMESPACE();
namespace shoal {
namespace HWY_NAMESPACE {
#if SHOAL_PORTABLE_TARGET
PackFunction panel_packer() { return nullptr; }
void flush_panels() {}
#else

constexpr hn::CappedTag<uint8_t, 64> kLine;
constexpr size_t kLineBytes = hn::MaxLanes(kLine);
constexpr bool kByLines = kLineBytes > kWideBytes;  // what a register holds, but not what is put at once
constexpr size_t kNearBytes = 128 << 10;            // of two panels, which a core's second cache keeps

// Writes past the caches, whole lines at a time. REQUIRES: `to` and `bytes` are multiples of kWideBytes.
HWY_INLINE void stream(const uint8_t* from, size_t bytes, uint8_t* to) {
  size_t at = 0;
  for (; at < bytes && reinterpret_cast<uintptr_t>(to + at) % kLineBytes != 0; at += kWideBytes) hn::Stream(hn::LoadU(kWide, from + at), kWide, to + at);
  for (; at + kLineBytes <= bytes; at += kLineBytes) hn::Stream(hn::LoadU(kLine, from + at), kLine, to + at);
  for (; at < bytes; at += kWideBytes) hn::Stream(hn::LoadU(kWide, from + at), kWide, to + at);
}

// Where a block's `kAhead` bytes lie beyond the end of a row, those are of the same row of the next panel, sixteen rows on. With
// kByLines, of rows that lie one behind the other, the whole next panel is asked for instead, in the order of memory.
template <typename Block>
HWY_INLINE Ahead ahead_of(const Rows& rows, size_t block, size_t row_bytes) {
  if (kByLines && rows.stride == row_bytes && kPanelRows * row_bytes <= kNearBytes) {
    return {{rows.first + kPanelRows * (row_bytes + block * Block::kStored), 0}, true};
  }
  const size_t at = (block * Block::kStored) + Block::kAhead;
  return {{rows.first + (at < row_bytes ? at : at - row_bytes + kPanelRows * rows.stride), rows.stride}, false};
}

// What a load packs now is not read before everything is packed: it goes past the caches, kPast. With kByLines that is done some lines
// at a time, since parts of lines between the reads hold these up.
template <typename Block, bool kPast>
void pack_rows(const Rows& rows, size_t blocks, uint8_t* panel) {
  constexpr bool kKept = kPast && kByLines;
  constexpr size_t kAtOnce = 8192 / Block::kPacked;
  alignas(64) uint8_t lines[kKept ? kAtOnce * Block::kPacked : 1];
  for (size_t begin = 0; begin < blocks; begin += kAtOnce) {
    const size_t end = std::min(blocks, begin + kAtOnce), bytes = (end - begin) * Block::kPacked;
    Out<kPast && !kKept> out{kKept ? lines : panel};
    for (size_t block = begin; block < end; ++block) {
      Block::pack({rows.first + block * Block::kStored, rows.stride}, ahead_of<Block>(rows, block, blocks * Block::kStored), out);
    }
    if constexpr (kKept) stream(lines, bytes, panel);
    panel += bytes;
  }
}

template <typename Block>
void pack_rows(const Rows& rows, size_t blocks, bool read_soon, uint8_t* panel) {
  if (read_soon || reinterpret_cast<uintptr_t>(panel) % kWideBytes != 0) pack_rows<Block, false>(rows, blocks, panel);
  else pack_rows<Block, true>(rows, blocks, panel);
}

template <typename Block>
void pack_blocks(const PanelSource& source, uint8_t* panel) {
  const auto row = [&](size_t i) { return reinterpret_cast<const uint8_t*>(source.rows[i]); };
  const auto apart = [&](size_t i) { return reinterpret_cast<uintptr_t>(row(i + 1)) - reinterpret_cast<uintptr_t>(row(i)); };
  const size_t blocks = source.columns / Block::kColumns, stride = apart(0);
  bool even = row(0) < row(1);
  for (size_t i = 1; i + 1 < kPanelRows; ++i) even = even && apart(i) == stride;
  if (even) return pack_rows<Block>({row(0), stride}, blocks, source.read_soon, panel);
  // Rows of several matrices: side by side first.
  constexpr size_t kStretch = std::max<size_t>(1, 1024 / Block::kStored), kStride = kStretch * Block::kStored;
  uint8_t copy[kPanelRows * kStride];
  for (size_t begin = 0; begin < blocks; begin += kStretch) {
    const size_t count = std::min(kStretch, blocks - begin);
    for (size_t i = 0; i < kPanelRows; ++i) std::memcpy(copy + i * kStride, row(i) + begin * Block::kStored, count * Block::kStored);
    pack_rows<Block>({copy, kStride}, count, source.read_soon, panel + begin * Block::kPacked);
  }
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
void flush_panels() { hwy::FlushStream(); }
#endif  // SHOAL_PORTABLE_TARGET
}  // namespace HWY_NAMESPACE
}  // namespace shoal
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace shoal {
HWY_EXPORT(panel_packer);
HWY_EXPORT(flush_panels);
PackFunction chosen_panel_packer() { return HWY_DYNAMIC_DISPATCH(panel_packer)(); }
void flush_panels() { HWY_DYNAMIC_DISPATCH(flush_panels)(); }
}  // namespace shoal
#endif
