// Short pieces that were encoded before, for all threads: natural text repeats its words.
#pragma once

#include <array>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "base/ids.h"
#include "text/tokenizer/string_map.h"

namespace shoal {

// Bounded: a shard that is full starts again empty, which costs one encoding for each word still in use. Nobody waits for a
// shard: who holds it may be a thread that gives way to others, and a word is encoded sooner than that one comes back.
class WordCache {
 public:
  static constexpr size_t kWordBytesMax = 48;

  // Appends the ids of `word` to `out` if it is known.
  bool find(std::string_view word, std::vector<TokenId>& out) {
    Shard& shard = shard_of(word);
    const std::unique_lock lock(shard.mutex, std::try_to_lock);
    if (!lock) return false;
    const auto it = shard.words.find(word);
    if (it == shard.words.end()) return false;
    out.insert(out.end(), it->second.begin(), it->second.end());
    return true;
  }
  void put(std::string_view word, std::span<const TokenId> ids) {
    Shard& shard = shard_of(word);
    const std::unique_lock lock(shard.mutex, std::try_to_lock);
    if (!lock) return;
    if (shard.words.size() >= kShardWordsMax) shard.words.clear();
    shard.words.try_emplace(std::string(word), ids.begin(), ids.end());
  }

 private:
  static constexpr size_t kShards = 16;
  static constexpr size_t kShardWordsMax = 4096;
  struct Shard {
    std::mutex mutex;
    StringMap<absl::InlinedVector<TokenId, 6>> words;
  };
  // By length and ends, not by a hash of all: the map hashes the word once more anyway.
  Shard& shard_of(std::string_view word) {
    const size_t mix = word.size() * 31u + static_cast<uint8_t>(word.front()) * 7u + static_cast<uint8_t>(word.back());
    return shards_[mix % kShards];
  }
  std::array<Shard, kShards> shards_;
};

}  // namespace shoal
