#include "tensor/shape.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/check.h"

namespace shoal {

Shape::Shape(std::span<const uint64_t> dims) : rank_(dims.size()) {
  CHECK_LE(dims.size(), kRankMax);
  std::copy(dims.begin(), dims.end(), dims_.begin());
}

uint64_t Shape::operator[](size_t axis) const {
  CHECK_LT(axis, rank_);
  return dims_[axis];
}

std::optional<uint64_t> Shape::elements() const {
  uint64_t product = 1;
  for (uint64_t dim : dims()) {
    if (__builtin_mul_overflow(product, dim, &product)) return std::nullopt;
  }
  return product;
}

std::string Shape::to_string() const { return absl::StrCat("[", absl::StrJoin(dims(), ", "), "]"); }

}  // namespace shoal
