#include "tensor/tensor.h"

#include <cstring>
#include <new>
#include <utility>

#include "base/bytes.h"
#include "base/check.h"

namespace shoal {

uint64_t TensorView::rows() const {
  uint64_t product = 1;
  for (size_t axis = 0; axis + 1 < shape.rank(); ++axis) product *= shape[axis];
  return product;
}

uint64_t TensorView::row_bytes() const {
  const uint64_t innermost = shape.rank() == 0 ? 1 : shape[shape.rank() - 1];
  const auto bytes_of_row = dtype_bytes(dtype, innermost);
  CHECK(bytes_of_row.has_value());  // whoever made the view has checked the shape against the type
  return *bytes_of_row;
}

StatusOr<Buffer> Buffer::allocate(uint64_t bytes) {
  Buffer buffer;
  if (bytes == 0) return buffer;
  void* memory = nullptr;
  if (bytes <= (uint64_t{1} << 48)) {
    memory = ::operator new(round_up(bytes, kTensorAlignment), std::align_val_t(kTensorAlignment), std::nothrow);
  }
  if (memory == nullptr) {
    return resource_exhausted("cannot allocate ", format_bytes(bytes), "; free memory or lower the budget");
  }
  buffer.data_ = static_cast<std::byte*>(memory);
  buffer.size_ = bytes;
  std::memset(memory, 0, bytes);
  return buffer;
}

Buffer::Buffer(Buffer&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

Buffer& Buffer::operator=(Buffer&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

Buffer::~Buffer() {
  if (data_ != nullptr) ::operator delete(data_, std::align_val_t(kTensorAlignment));
}

StatusOr<Tensor> Tensor::allocate(DType dtype, const Shape& shape) {
  const auto elements = shape.elements();
  const uint64_t innermost = shape.rank() == 0 ? 1 : shape[shape.rank() - 1];
  if (!elements || innermost % dtype_info(dtype).block_elements != 0 || !dtype_bytes(dtype, *elements)) {
    return invalid_argument("a tensor of shape ", shape.to_string(), " cannot hold type ", dtype_name(dtype));
  }
  Tensor tensor;
  ASSIGN_OR_RETURN(tensor.buffer_, Buffer::allocate(*dtype_bytes(dtype, *elements)));
  tensor.dtype_ = dtype;
  tensor.shape_ = shape;
  return tensor;
}

}  // namespace shoal
