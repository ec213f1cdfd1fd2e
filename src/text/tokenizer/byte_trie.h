// A trie over byte strings, for finding all known strings that begin at a place in a text.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

namespace shoal {

// Built once, then immutable. Walk: node = first(byte); while (node != kNone) { value(node) ...; node = next(node, byte) }
class ByteTrie {
 public:
  static constexpr uint32_t kNone = 0;
  struct Entry {
    std::string_view key;  // needed during construction only; empty keys are ignored
    int32_t value;         // >= 0; of equal keys the last one counts
  };

  ByteTrie() : nodes_(1) {}
  explicit ByteTrie(std::vector<Entry> entries);

  uint32_t first(uint8_t byte) const { return roots_[byte]; }
  uint32_t next(uint32_t node, uint8_t byte) const {
    const auto begin = edges_.begin() + nodes_[node].edges_begin, end = edges_.begin() + nodes_[node].edges_end;
    const auto edge = std::lower_bound(begin, end, byte, [](const Edge& e, uint8_t b) { return e.byte < b; });
    return edge != end && edge->byte == byte ? edge->node : kNone;
  }
  int32_t value(uint32_t node) const { return nodes_[node].value; }  // -1: no key ends here

 private:
  struct Node {
    uint32_t edges_begin = 0, edges_end = 0;
    int32_t value = -1;
  };
  struct Edge {
    uint8_t byte;
    uint32_t node;
  };
  std::vector<Node> nodes_;
  std::vector<Edge> edges_;  // of one node: contiguous, ascending by byte
  std::array<uint32_t, 256> roots_{};
};

}  // namespace shoal
