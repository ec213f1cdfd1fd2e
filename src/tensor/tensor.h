// Who sees bytes and who owns them are different types: TensorView sees, Buffer owns, Tensor does both.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/status.h"
#include "tensor/dtype.h"
#include "tensor/shape.h"

namespace shoal {

constexpr size_t kTensorAlignment = 64;  // one cache line, one AVX-512 register

// A read-only tensor in memory that somebody else owns (a mapped file, a Buffer). Elements are row-major and dense; the
// innermost dimension holds whole blocks of the type. The data need not be aligned: files do not promise it.
struct TensorView {
  DType dtype = DType::kF32;
  Shape shape;
  const std::byte* data = nullptr;
  uint64_t bytes = 0;

  uint64_t rows() const;       // product of all dimensions but the innermost; 1 for rank 0
  uint64_t row_bytes() const;  // of the innermost dimension
};

// Owns zero-filled bytes aligned to kTensorAlignment. Movable, not copyable.
class Buffer {
 public:
  Buffer() = default;
  // ResourceExhausted if the memory cannot be had.
  static StatusOr<Buffer> allocate(uint64_t bytes);

  Buffer(Buffer&& other) noexcept;
  Buffer& operator=(Buffer&& other) noexcept;
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  ~Buffer();

  std::byte* data() { return data_; }
  const std::byte* data() const { return data_; }
  uint64_t size() const { return size_; }
  std::span<std::byte> span() { return {data_, size_}; }
  std::span<const std::byte> span() const { return {data_, size_}; }

 private:
  std::byte* data_ = nullptr;
  uint64_t size_ = 0;
};

// A buffer and the view of it.
class Tensor {
 public:
  // InvalidArgument if the shape does not hold whole blocks or overflows, ResourceExhausted without memory.
  static StatusOr<Tensor> allocate(DType dtype, const Shape& shape);

  TensorView view() const { return {dtype_, shape_, buffer_.data(), buffer_.size()}; }
  std::byte* data() { return buffer_.data(); }

 private:
  DType dtype_ = DType::kF32;
  Shape shape_;
  Buffer buffer_;
};

}  // namespace shoal
