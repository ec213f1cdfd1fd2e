#include "kernels/cpu/targets.h"

#include "kernels/pack.h"

#include <cstring>
#include <iterator>
#include <limits>
#include <optional>
#include <vector>

#include "base/rng.h"
#include "gtest/gtest.h"
#include "hwy/highway.h"
#include "kernels/kernels.h"
#include "tensor/half.h"
#include "tensor/tensor.h"

namespace shoal {
namespace {

// Random bytes for blocks, numbers for floats, in 16 rows whose last is zero.
std::vector<std::byte> stored_rows(Rng& rng, DType type, size_t columns) {
  const size_t row_bytes = *dtype_bytes(type, columns);
  std::vector<std::byte> stored(kPanelRows * row_bytes);
  for (size_t at = 0; at < 15 * row_bytes; ++at) stored[at] = static_cast<std::byte>(rng.bits());
  for (size_t i = 0; i < 15 * columns && !is_block_type(type); ++i) {
    const float value = static_cast<float>(rng.uniform() * 2 - 1);
    const uint16_t half = type == DType::kF16 ? f16_from_f32(value) : bf16_from_f32(value);
    if (type == DType::kF32) {
      std::memcpy(stored.data() + 4 * i, &value, 4);
    } else {
      std::memcpy(stored.data() + 2 * i, &half, 2);
    }
  }
  return stored;
}

std::vector<std::byte> panel_of(const std::vector<std::byte>& stored, DType type, size_t rows, size_t columns, size_t shift,
                                std::optional<WeightFormat> to = std::nullopt, std::vector<const std::byte*> sources = {}) {
  const WeightFormat format = to.value_or(natural_format(type));
  for (size_t row = sources.size(); row < rows; ++row) sources.push_back(stored.data() + row * *dtype_bytes(type, columns));
  const size_t bytes = panel_bytes(format, columns);
  Buffer out = *Buffer::allocate(bytes + kTensorAlignment);
  pack_panel({type, sources, columns, {}, 0}, format, out.data() + shift);
  return std::vector<std::byte>(out.data() + shift, out.data() + shift + bytes);
}

// A panel with a missing row is packed number by number; a full one, of these types, by moving words. A stored row of
// zeros is packed as a missing one.
TEST(PackTest, WordsThatAreMovedAreThoseOfTheNumbersPackedOneByOne) {
  for (int64_t target : simd_targets()) {
    hwy::SetSupportedTargetsForTest(target);
    Rng rng(11);
    for (DType type : {DType::kF32, DType::kF16, DType::kBF16, DType::kQ8_0, DType::kQ4_0, DType::kQ4_K, DType::kQ6_K}) {
      for (size_t columns : {size_t{256}, size_t{1536}, size_t{5632}}) {
        const std::vector<std::byte> stored = stored_rows(rng, type, columns);
        const auto want = panel_of(stored, type, 15, columns, 0);
        EXPECT_TRUE(panel_of(stored, type, 16, columns, 0) == want) << dtype_name(type) << ' ' << columns;
        EXPECT_TRUE(panel_of(stored, type, 16, columns, 16) == want) << dtype_name(type) << ' ' << columns << ", not aligned";
      }
    }
    hwy::SetSupportedTargetsForTest(0);
  }
}

// Rows of several matrices in one panel, in whatever order those lie in memory.
TEST(PackTest, RowsNeedNotLieSideBySide) {
  for (int64_t target : simd_targets()) {
    hwy::SetSupportedTargetsForTest(target);
    Rng rng(14);
    for (DType type : {DType::kF32, DType::kBF16, DType::kQ8_0, DType::kQ4_0, DType::kQ4_K, DType::kQ6_K}) {
      for (size_t columns : {size_t{256}, size_t{2816}}) {
        const std::vector<std::byte> stored = stored_rows(rng, type, columns);
        const size_t row_bytes = stored.size() / kPanelRows;
        std::vector<std::byte> low(8 * row_bytes + 48), high(8 * row_bytes);
        std::vector<const std::byte*> rows;
        for (size_t row = 0; row < kPanelRows; ++row) {
          std::byte* copy = row < 8 ? high.data() + row * row_bytes : low.data() + 48 + (15 - row) * row_bytes;
          std::memcpy(copy, stored.data() + row * row_bytes, row_bytes);
          rows.push_back(copy);
        }
        const auto want = panel_of(stored, type, 16, columns, 0);
        EXPECT_TRUE(panel_of({}, type, 16, columns, 0, std::nullopt, rows) == want) << dtype_name(type) << ' ' << columns;
        std::swap(rows[0], rows[1]);
        EXPECT_FALSE(panel_of({}, type, 16, columns, 0, std::nullopt, rows) == want) << dtype_name(type) << ' ' << columns;
      }
    }
    hwy::SetSupportedTargetsForTest(0);
  }
}

// Of special numbers too: those that are none, infinities, ties of magnitude and rounding.
TEST(PackTest, QuantisingManyNumbersAtOnceGivesTheBitsOfOneByOne) {
  const size_t columns = 2 * 1024 + 32;
  const float odd[] = {0.0f, -0.0f, std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity(),
                       std::numeric_limits<float>::quiet_NaN(), -1.0f, 1.0f, 0.5f, 1e-30f, 3e38f};
  for (int64_t target : simd_targets()) {
    hwy::SetSupportedTargetsForTest(target);
    Rng rng(13);
    for (DType type : {DType::kF32, DType::kF16, DType::kBF16}) {
      std::vector<std::byte> stored = stored_rows(rng, type, columns);
      for (size_t i = 0; i < 3000; ++i) {
        const size_t at = rng.below(15 * columns);
        const float value = odd[rng.below(std::size(odd))];
        const uint16_t half = type == DType::kF16 ? f16_from_f32(value) : bf16_from_f32(value);
        if (type == DType::kF32) {
          std::memcpy(stored.data() + 4 * at, &value, 4);
        } else {
          std::memcpy(stored.data() + 2 * at, &half, 2);
        }
      }
      for (WeightFormat format : {WeightFormat::kQ8_0, WeightFormat::kQ4_0}) {
        auto want = panel_of(stored, type, 15, columns, 0, format), got = panel_of(stored, type, 16, columns, 0, format);
        // A missing row is zero bits; one of zeros has codes of 0, which kQ4_0 stores as 8, and a scale of -0.
        const size_t block_bytes = panel_bytes(format, 32), lines = block_bytes - 32;
        for (size_t at = 0; at < want.size(); ++at) {
          const size_t in_block = at % block_bytes;
          const bool last_row = in_block < lines ? in_block % 64 / 4 == 15 : (in_block - lines) / 2 == 15;
          if (last_row) want[at] = got[at] = std::byte{0};
        }
        EXPECT_TRUE(got == want) << dtype_name(type) << " to " << weight_format_name(format);
      }
    }
    hwy::SetSupportedTargetsForTest(0);
  }
}

// Columns that are not whole vectors, and matrices whose type is changed on the way.
TEST(PackTest, PanelsThatAreNotWholeWordsAreStillRight) {
  Rng rng(12);
  for (DType type : {DType::kF32, DType::kF16, DType::kBF16}) {
    const size_t columns = 41;
    const std::vector<std::byte> stored = stored_rows(rng, type, columns);
    const auto panel = panel_of(stored, type, 16, columns, 0);
    const size_t bytes = type == DType::kF32 ? 4 : 2;
    for (size_t row = 0; row < 16; ++row) {
      for (size_t k = 0; k < columns; ++k) {
        ASSERT_EQ(std::memcmp(panel.data() + bytes * (k * kPanelRows + row), stored.data() + bytes * (row * columns + k), bytes), 0);
      }
    }
  }
}

}  // namespace
}  // namespace shoal
