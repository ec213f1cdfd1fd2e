#include "tensor/tensor.h"

#include <sys/mman.h>

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

// Large ones come straight from the system, which hands out zeros when a page is first touched.
constexpr uint64_t kMappedMin = 1 * kMiB;

StatusOr<Buffer> Buffer::allocate(uint64_t bytes) {
  Buffer buffer;
  if (bytes == 0) return buffer;
  void* memory = nullptr;
  if (bytes < kMappedMin) {
    memory = ::operator new(round_up(bytes, kTensorAlignment), std::align_val_t(kTensorAlignment), std::nothrow);
    if (memory != nullptr) std::memset(memory, 0, bytes);
  } else if (bytes <= (uint64_t{1} << 47)) {
    memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) memory = nullptr;
    if (memory != nullptr) madvise(memory, bytes, MADV_HUGEPAGE);  // without it the same works, slower
  }
  if (memory == nullptr) {
    return resource_exhausted("cannot allocate ", format_bytes(bytes), "; free memory or lower the budget");
  }
  buffer.data_ = static_cast<std::byte*>(memory);
  buffer.size_ = bytes;
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
  if (data_ == nullptr) return;
  if (size_ >= kMappedMin) {
    munmap(data_, size_);
  } else {
    ::operator delete(data_, std::align_val_t(kTensorAlignment));
  }
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
