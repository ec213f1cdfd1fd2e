// Strong ids: a RequestId cannot be passed where a NodeId is wanted.
#pragma once

#include <compare>
#include <cstdint>
#include <functional>
#include <ostream>
#include <utility>

namespace shoal {

template <typename Tag, typename Rep>
struct StrongId {
  Rep value{};

  constexpr StrongId() = default;
  explicit constexpr StrongId(Rep v) : value(v) {}
  friend constexpr auto operator<=>(const StrongId&, const StrongId&) = default;
  friend std::ostream& operator<<(std::ostream& out, StrongId id) { return out << +id.value; }
  template <typename H>
  friend H AbslHashValue(H h, StrongId id) { return H::combine(std::move(h), id.value); }
};

using RequestId = StrongId<struct RequestTag, uint64_t>;  // one client request, unique for the life of a gateway
using ModelId = StrongId<struct ModelTag, uint32_t>;      // index of a registered model, the same in every role
using NodeId = StrongId<struct NodeTag, uint32_t>;
using PageId = StrongId<struct PageTag, uint32_t>;        // a 2 MiB page of a device's pool
using TokenId = int32_t;                                  // index into a model's vocabulary
using BlockId = StrongId<struct BlockTag, uint32_t>;      // a KV block, unique within its shape class
constexpr uint32_t kTokensPerBlock = 16;

}  // namespace shoal

template <typename Tag, typename Rep>
struct std::hash<shoal::StrongId<Tag, Rep>> {
  size_t operator()(shoal::StrongId<Tag, Rep> id) const { return std::hash<Rep>{}(id.value); }
};
