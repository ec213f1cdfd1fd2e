// Dimensions of a tensor, outermost first.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <ostream>
#include <span>
#include <string>

namespace shoal {

class Shape {
 public:
  static constexpr size_t kRankMax = 6;

  Shape() = default;
  // REQUIRES: at most kRankMax dimensions.
  Shape(std::initializer_list<uint64_t> dims) : Shape(std::span<const uint64_t>(dims.begin(), dims.size())) {}
  explicit Shape(std::span<const uint64_t> dims);

  size_t rank() const { return rank_; }
  // REQUIRES: axis < rank().
  uint64_t operator[](size_t axis) const;
  std::span<const uint64_t> dims() const { return {dims_.data(), rank_}; }

  // Product of all dimensions (1 for rank 0); nullopt if it does not fit 64 bits.
  std::optional<uint64_t> elements() const;

  std::string to_string() const;  // "[32, 64]"
  friend bool operator==(const Shape&, const Shape&) = default;
  friend std::ostream& operator<<(std::ostream& out, const Shape& shape) { return out << shape.to_string(); }

 private:
  std::array<uint64_t, kRankMax> dims_{};
  size_t rank_ = 0;
};

}  // namespace shoal
