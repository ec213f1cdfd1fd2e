// Hash maps from strings that can be asked with a std::string_view. (Abseil's own string_view is another type where the
// library was built for C++14, as Debian's is.)
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "absl/container/flat_hash_map.h"

namespace shoal {

struct StringViewHash {
  using is_transparent = void;
  size_t operator()(std::string_view s) const { return std::hash<std::string_view>()(s); }
};

template <typename Value>
using StringMap = absl::flat_hash_map<std::string, Value, StringViewHash, std::equal_to<>>;

}  // namespace shoal
