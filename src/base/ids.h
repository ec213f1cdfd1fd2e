// Strong ids: a RequestId cannot be passed where a NodeId is wanted.
#pragma once

#include <compare>
#include <cstdint>
#include <functional>
#include <ostream>
#include <string>
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

using ModelId = StrongId<struct ModelTag, uint32_t>;      // index of a registered model, the same in every role
using NodeId = StrongId<struct NodeTag, uint32_t>;
using PageId = StrongId<struct PageTag, uint32_t>;        // a 2 MiB page of a device's pool
using TokenId = int32_t;                                  // index into a model's vocabulary
using BlockId = StrongId<struct BlockTag, uint32_t>;      // a KV block, unique within its shape class
constexpr uint32_t kTokensPerBlock = 16;

// One choice of a client's request, by a name that no other has: not at another gateway, nor after that gateway began anew.
struct RequestId {
  NodeId gateway;         // that took it
  uint32_t life = 0;      // of that gateway: its epoch in the cluster
  uint64_t sequence = 0;  // rises with the requests of that life

  constexpr RequestId() = default;
  explicit constexpr RequestId(uint64_t s) : sequence(s) {}  // where there is one gateway with one life
  constexpr RequestId(NodeId g, uint32_t l, uint64_t s) : gateway(g), life(l), sequence(s) {}
  // "7", or "2.1.7": request 7 of the first life of gateway 2.
  std::string text() const {
    const std::string number = std::to_string(sequence);
    return gateway.value == 0 && life == 0 ? number : std::to_string(gateway.value) + "." + std::to_string(life) + "." + number;
  }
  friend constexpr auto operator<=>(const RequestId&, const RequestId&) = default;
  friend std::ostream& operator<<(std::ostream& out, const RequestId& id) { return out << id.text(); }
  template <typename H>
  friend H AbslHashValue(H h, const RequestId& id) { return H::combine(std::move(h), id.gateway, id.life, id.sequence); }
};

}  // namespace shoal

template <typename Tag, typename Rep>
struct std::hash<shoal::StrongId<Tag, Rep>> {
  size_t operator()(shoal::StrongId<Tag, Rep> id) const { return std::hash<Rep>{}(id.value); }
};

template <>
struct std::hash<shoal::RequestId> {
  // Of the sequence alone where there is one gateway: the order of a hash map's entries is a part of recorded decisions.
  size_t operator()(const shoal::RequestId& id) const {
    const uint64_t origin = (uint64_t{id.gateway.value} << 32) | id.life;
    return std::hash<uint64_t>{}(id.sequence) ^ (origin * 0x9e3779b97f4a7c15ull);
  }
};
