#include "tensor/tensor.h"

#include <cmath>
#include <limits>

#include "gtest/gtest.h"
#include "tensor/half.h"

namespace shoal {
namespace {

TEST(DTypeTest, BlockTypesCountWholeBlocksOnly) {
  EXPECT_EQ(dtype_bytes(DType::kQ8_0, 64), 68u);
  EXPECT_EQ(dtype_bytes(DType::kQ4_K, 512), 288u);
  EXPECT_EQ(dtype_bytes(DType::kQ8_0, 33), std::nullopt);
}

TEST(DTypeTest, AByteCountThatOverflowsIsRefused) {
  EXPECT_EQ(dtype_bytes(DType::kF64, std::numeric_limits<uint64_t>::max() / 2), std::nullopt);
}

TEST(DTypeTest, SafetensorsNamesArePlainTypesOnly) {
  EXPECT_EQ(dtype_from_safetensors("BF16"), DType::kBF16);
  EXPECT_EQ(dtype_from_safetensors("F8_E4M3"), DType::kF8E4M3);
  EXPECT_EQ(dtype_from_safetensors("Q8_0"), std::nullopt);
  EXPECT_EQ(dtype_from_safetensors(""), std::nullopt);
}

TEST(ShapeTest, ElementsOfAnOverflowingShapeAreUnknown) {
  EXPECT_EQ((Shape{uint64_t{1} << 40, uint64_t{1} << 40}).elements(), std::nullopt);
  EXPECT_EQ((Shape{3, 4, 5}).elements(), 60u);
  EXPECT_EQ(Shape().elements(), 1u);
  EXPECT_EQ((Shape{3, 4}).to_string(), "[3, 4]");
}

TEST(BufferTest, IsAlignedZeroFilledAndMovable) {
  auto buffer = Buffer::allocate(1000);
  ASSERT_TRUE(buffer.ok());
  EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer->data()) % kTensorAlignment, 0u);
  for (std::byte b : buffer->span()) ASSERT_EQ(b, std::byte{0});
  Buffer moved = *std::move(buffer);
  EXPECT_EQ(moved.size(), 1000u);
}

TEST(BufferTest, AnAbsurdSizeIsAnErrorAndNotACrash) {
  EXPECT_EQ(Buffer::allocate(uint64_t{1} << 60).status().code(), StatusCode::kResourceExhausted);
}

TEST(TensorTest, ShapeMustHoldWholeBlocksInItsRows) {
  EXPECT_FALSE(Tensor::allocate(DType::kQ8_0, Shape{64, 16}).ok());
  auto tensor = Tensor::allocate(DType::kQ8_0, Shape{3, 64});
  ASSERT_TRUE(tensor.ok());
  EXPECT_EQ(tensor->view().rows(), 3u);
  EXPECT_EQ(tensor->view().row_bytes(), 68u);
  EXPECT_EQ(tensor->view().bytes, 204u);
}

TEST(HalfTest, EveryF16SurvivesTheWayThroughF32) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const float value = f32_from_f16(static_cast<uint16_t>(bits));
    if (std::isnan(value)) continue;
    ASSERT_EQ(f16_from_f32(value), bits);
  }
}

TEST(HalfTest, NarrowingRoundsToNearestEven) {
  EXPECT_EQ(f16_from_f32(1.0f + 0x1p-11f), f16_from_f32(1.0f));             // tie, even below
  EXPECT_EQ(f16_from_f32(1.0f + 3 * 0x1p-11f), f16_from_f32(1.0f + 0x1p-9f));  // tie, even above
  EXPECT_EQ(f16_from_f32(65520.0f), 0x7c00);                                // rounds to infinity
  EXPECT_EQ(f16_from_f32(65519.0f), 0x7bff);
  EXPECT_EQ(f16_from_f32(0x1p-25f), 0);                                     // tie with zero
  EXPECT_EQ(f16_from_f32(0x1.8p-24f), 2);                                   // tie, even above
  EXPECT_EQ(bf16_from_f32(1.0f + 0x1p-8f), bf16_from_f32(1.0f));
  EXPECT_EQ(f32_from_bf16(bf16_from_f32(1.0f + 3 * 0x1p-8f)), 1.0f + 0x1p-6f);
}

TEST(HalfTest, NanStaysNan) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_TRUE(std::isnan(f32_from_bf16(bf16_from_f32(nan))));
  EXPECT_TRUE(std::isnan(f32_from_f16(f16_from_f32(nan))));
}

TEST(HalfTest, Fp8HasTheValuesOfItsSpecification) {
  EXPECT_EQ(f32_from_f8e4m3(0x7e), 448.0f);
  EXPECT_EQ(f32_from_f8e4m3(0x38), 1.0f);
  EXPECT_EQ(f32_from_f8e4m3(0x01), 0x1p-9f);
  EXPECT_TRUE(std::isnan(f32_from_f8e4m3(0xff)));
  EXPECT_EQ(f32_from_f8e5m2(0x7b), 57344.0f);
  EXPECT_EQ(f32_from_f8e5m2(0x80), -0.0f);
}

}  // namespace
}  // namespace shoal
