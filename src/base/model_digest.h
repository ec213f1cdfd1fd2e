// Which weights computed something, by a name that holds outside the process that gave it.
#pragma once

#include <array>
#include <cstdint>

namespace shoal {

// Everything but the request that the bits of an answer depend on: the files of the model, what is done with them at load, the type
// of KV, the arithmetic. The stamp is known as soon as the files are opened: it is of what they say and of samples of what they hold,
// equal on every machine for equal files, and the model's name beside its name (wire/model_names.h). `content` is of all their bytes,
// and known when somebody has read them to their end; until then the stamp stands in for it.
struct ModelDigest {
  using Content = std::array<uint8_t, 32>;  // SHA-256

  uint64_t stamp = 0;  // 0: none
  Content content{};   // zeros: not known yet

  constexpr ModelDigest() = default;
  constexpr ModelDigest(uint64_t s) : stamp(s) {}  // NOLINT: a digest of which no more is known
  constexpr ModelDigest(uint64_t s, const Content& c) : stamp(s), content(c) {}

  constexpr bool known() const { return content != Content{}; }
  constexpr bool given() const { return stamp != 0 || known(); }
  friend constexpr bool operator==(const ModelDigest&, const ModelDigest&) = default;
};

// Whether what the one computed may go on with the other: equal content, or, where one of them is not known, the same stamp.
constexpr bool same_weights(const ModelDigest& a, const ModelDigest& b) {
  return a.known() && b.known() ? a.content == b.content : a.stamp == b.stamp;
}

}  // namespace shoal
