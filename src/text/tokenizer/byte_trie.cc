#include "text/tokenizer/byte_trie.h"

namespace shoal {

// Breadth first over the sorted keys: a node is the range of keys that share a prefix.
ByteTrie::ByteTrie(std::vector<Entry> entries) {
  std::erase_if(entries, [](const Entry& e) { return e.key.empty(); });
  std::stable_sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) { return a.key < b.key; });
  struct Pending {
    uint32_t node;
    size_t begin, end, depth;
  };
  nodes_.emplace_back();
  std::vector<Pending> queue = {{0, 0, entries.size(), 0}};
  for (size_t q = 0; q < queue.size(); ++q) {
    auto [node, begin, end, depth] = queue[q];
    for (; begin < end && entries[begin].key.size() == depth; ++begin) nodes_[node].value = entries[begin].value;
    nodes_[node].edges_begin = static_cast<uint32_t>(edges_.size());
    while (begin < end) {
      const auto byte = static_cast<uint8_t>(entries[begin].key[depth]);
      size_t same = begin;
      while (same < end && static_cast<uint8_t>(entries[same].key[depth]) == byte) ++same;
      const auto child = static_cast<uint32_t>(nodes_.size());
      nodes_.emplace_back();
      edges_.push_back({byte, child});
      queue.push_back({child, begin, same, depth + 1});
      begin = same;
    }
    nodes_[node].edges_end = static_cast<uint32_t>(edges_.size());
  }
  for (uint32_t e = nodes_[0].edges_begin; e < nodes_[0].edges_end; ++e) roots_[edges_[e].byte] = edges_[e].node;
}

}  // namespace shoal
