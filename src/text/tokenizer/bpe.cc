#include "text/tokenizer/bpe.h"

#include <algorithm>

#include "text/tokenizer/merge_queue.h"
#include "text/tokenizer/unicode.h"

namespace shoal {
namespace {

constexpr size_t kShortSymbolsMax = 40;   // up to here scanning for the lowest rank beats a heap
constexpr size_t kHeapSymbolsMax = 4096;  // up to here a heap stays in the cache

uint64_t pair_key(TokenId left, TokenId right) {
  return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
}

// At most 4 bytes of a symbol as a number.
uint32_t symbol_bits(std::string_view symbol) {
  uint32_t bits = 0;
  for (const char c : symbol) bits = bits << 8 | static_cast<uint8_t>(c);
  return bits;
}

uint32_t crossing_bit(std::string_view left, std::string_view right, size_t bits) {
  const uint64_t both = static_cast<uint64_t>(symbol_bits(left)) << 32 | symbol_bits(right);
  return static_cast<uint32_t>((both * 0x9E3779B97F4A7C15ull) >> 40) % static_cast<uint32_t>(bits);
}

std::string_view last_symbol(std::string_view text, bool raw_bytes) {
  size_t bytes = 1;
  if (!raw_bytes) unicode::decode_last(text, text.size(), &bytes);
  return text.substr(text.size() - bytes);
}

}  // namespace

Bpe::Bpe(BpeConfig config)
    : config_(std::move(config)), plain_symbols_(config_.continuing_prefix.empty() && config_.end_suffix.empty()) {
  index_symbols();
  index_merges();
}

void Bpe::index_symbols() {
  single_byte_symbols_.fill(kNone);
  const int limit = config_.raw_bytes ? 256 : 128;
  for (int b = 0; b < limit; ++b) {
    const auto it = config_.vocab.find(std::string(1, static_cast<char>(b)));
    if (it != config_.vocab.end()) single_byte_symbols_[static_cast<size_t>(b)] = it->second;
  }
  if (config_.extra_symbols.empty()) return;
  extra_spelling_.resize(config_.extra_symbols.size());
  extra_first_ = std::min_element(config_.extra_symbols.begin(), config_.extra_symbols.end(), [](auto& a, auto& b) {
                   return a.second < b.second;
                 })->second;
  for (const auto& [spelling, id] : config_.extra_symbols) {
    extra_spelling_[static_cast<size_t>(id - extra_first_)] = spelling;
    if (spelling.size() == 1) single_byte_symbols_[static_cast<uint8_t>(spelling[0])] = id;
  }
}

void Bpe::index_merges() {
  std::vector<std::string_view> spelling;  // by id
  const auto spell = [&](const std::string& text, TokenId id) {
    const size_t at = static_cast<size_t>(id);
    if (at >= spelling.size()) spelling.resize(std::max(at + 1, 2 * spelling.size()));
    if (spelling[at].empty()) spelling[at] = text;
  };
  for (const auto& [text, id] : config_.vocab) spell(text, id);
  for (const auto& [text, id] : config_.extra_symbols) spell(text, id);
  if (plain_symbols_) crossings_ = std::make_unique<std::bitset<kCrossingBits>>();
  merges_.reserve(config_.merges.size());
  for (const BpeMerge& merge : config_.merges) {
    merges_[pair_key(merge.left, merge.right)] = {merge.rank, merge.result};
    if (!crossings_) continue;
    const std::string_view left = last_symbol(spelling[static_cast<size_t>(merge.left)], config_.raw_bytes);
    const std::string_view right = spelling[static_cast<size_t>(merge.right)];
    crossings_->set(crossing_bit(left, right.substr(0, symbol_bytes(right, 0)), kCrossingBits));
  }
}

const Bpe::MergeTo* Bpe::find_merge(TokenId left, TokenId right) const {
  const auto it = merges_.find(pair_key(left, right));
  return it == merges_.end() ? nullptr : &it->second;
}

size_t Bpe::symbol_bytes(std::string_view text, size_t at) const {
  return config_.raw_bytes ? 1 : std::min(unicode::step(text, at), text.size() - at);
}

TokenId Bpe::symbol_id(std::string_view symbol) const {
  if (symbol.size() == 1) return single_byte_symbols_[static_cast<uint8_t>(symbol[0])];
  if (const auto it = config_.vocab.find(symbol); it != config_.vocab.end()) return it->second;
  const auto it = config_.extra_symbols.find(symbol);
  return it == config_.extra_symbols.end() ? kNone : it->second;
}

bool Bpe::may_merge_across(std::string_view left, std::string_view right) const {
  return crossings_->test(crossing_bit(left, right, kCrossingBits));
}

size_t Bpe::token_bytes_max() const {
  const auto known = [](TokenId id) { return id != kNone; };
  const auto all_known = [&](const std::array<TokenId, 256>& ids) { return std::all_of(ids.begin(), ids.end(), known); };
  const bool one_for_each = config_.unk && !config_.fuse_unk;
  const bool by_bytes = config_.byte_fallback && all_known(config_.byte_tokens);
  const bool no_unknown = config_.raw_bytes && config_.extra_symbols.empty() && all_known(single_byte_symbols_);
  if (!one_for_each && !by_bytes && !no_unknown) return 0;
  size_t longest = unicode::kCharBytesMax;
  for (const auto& [spelling, id] : config_.vocab) longest = std::max(longest, spelling.size());
  return longest;
}

void Bpe::encode(std::string_view piece, size_t tokens_max, std::vector<TokenId>& out) const {
  if (config_.ignore_merges) {
    if (const auto it = config_.vocab.find(piece); it != config_.vocab.end()) {
      out.push_back(it->second);
      return;
    }
  }
  if (piece.size() > WordCache::kWordBytesMax && plain_symbols_) return encode_long(piece, tokens_max, out);
  encode_word(piece, out);
}

// Cuts the piece where no merge can cross. Both neighbours of a cut are known symbols, so that runs of unknown ones
// (which may fuse) stay together.
void Bpe::encode_long(std::string_view piece, size_t tokens_max, std::vector<TokenId>& out) const {
  size_t begin = 0;
  std::string_view before;
  bool before_known = false;
  for (size_t at = 0; at < piece.size();) {
    const std::string_view symbol = piece.substr(at, symbol_bytes(piece, at));
    const bool known = symbol_id(symbol) != kNone;
    if (known && before_known && !may_merge_across(before, symbol)) {
      encode_word(piece.substr(begin, at - begin), out);
      if (out.size() > tokens_max) return;
      begin = at;
    }
    before = symbol;
    before_known = known;
    at += symbol.size();
  }
  encode_word(piece.substr(begin), out);
}

void Bpe::encode_word(std::string_view word, std::vector<TokenId>& out) const {
  if (word.size() > WordCache::kWordBytesMax) return encode_uncached(word, out);
  if (cache_.find(word, out)) return;
  const size_t first = out.size();
  encode_uncached(word, out);
  cache_.put(word, std::span(out).subspan(first));
}

void Bpe::encode_uncached(std::string_view word, std::vector<TokenId>& out) const {
  std::vector<TokenId> ids;
  ids.reserve(word.size());
  to_symbols(word, ids);
  if (ids.size() <= kShortSymbolsMax) {
    merge_short(ids);
  } else if (ids.size() <= kHeapSymbolsMax) {
    merge_queued<MergeHeap>(ids);
  } else {
    merge_queued<MergeBuckets>(ids);
  }
  emit(ids, out);
}

bool Bpe::fall_back(std::string_view symbol, std::vector<TokenId>& ids) const {
  if (!config_.byte_fallback) return false;
  const auto token = [&](char b) { return config_.byte_tokens[static_cast<uint8_t>(b)]; };
  if (std::any_of(symbol.begin(), symbol.end(), [&](char b) { return token(b) == kNone; })) return false;
  for (const char b : symbol) ids.push_back(token(b));
  return true;
}

// Unknown symbols are held as a pending unk which the next known symbol releases; symbols that fall back to bytes pass
// by it, as in the reference library.
void Bpe::to_symbols(std::string_view word, std::vector<TokenId>& ids) const {
  bool pending_unk = false;
  std::string decorated;
  for (size_t at = 0; at < word.size();) {
    const std::string_view symbol = word.substr(at, symbol_bytes(word, at));
    const size_t next = at + symbol.size();
    TokenId id;
    if (plain_symbols_) {
      id = symbol_id(symbol);
    } else {
      decorated.assign(at == 0 ? std::string_view() : std::string_view(config_.continuing_prefix));
      decorated += symbol;
      if (next == word.size()) decorated += config_.end_suffix;
      id = symbol_id(decorated);
    }
    at = next;
    if (id != kNone) {
      if (pending_unk) ids.push_back(*config_.unk);
      pending_unk = false;
      ids.push_back(id);
    } else if (!fall_back(plain_symbols_ ? symbol : std::string_view(decorated), ids) && config_.unk) {
      if (pending_unk && !config_.fuse_unk) ids.push_back(*config_.unk);
      pending_unk = true;
    }
  }
  if (pending_unk) ids.push_back(*config_.unk);
}

void Bpe::merge_short(std::vector<TokenId>& ids) const {
  constexpr uint32_t kNever = UINT32_MAX;
  std::array<MergeTo, kShortSymbolsMax> next;  // next[i]: what ids[i] and ids[i + 1] would become
  const auto look_up = [&](size_t i) {
    const MergeTo* merge = find_merge(ids[i], ids[i + 1]);
    next[i] = merge != nullptr ? *merge : MergeTo{kNever, kNone};
  };
  for (size_t i = 0; i + 1 < ids.size(); ++i) look_up(i);
  while (ids.size() > 1) {
    size_t best = 0;
    for (size_t i = 1; i + 1 < ids.size(); ++i) {
      if (next[i].rank < next[best].rank) best = i;
    }
    if (next[best].rank == kNever) return;
    ids[best] = next[best].result;
    ids.erase(ids.begin() + static_cast<ptrdiff_t>(best) + 1);
    for (size_t i = best + 1; i + 1 < ids.size(); ++i) next[i] = next[i + 1];
    if (best + 1 < ids.size()) look_up(best);
    if (best > 0) look_up(best - 1);
  }
}

// The same outcome in n log n: a queue of candidate pairs over a linked list of symbols. A candidate is stale when its
// left symbol was merged away or its pair has changed since.
template <typename Queue>
void Bpe::merge_queued(std::vector<TokenId>& ids) const {
  constexpr uint32_t kEnd = UINT32_MAX;
  const auto count = static_cast<uint32_t>(ids.size());
  std::vector<uint32_t> next(count), previous(count);
  Queue candidates;
  const auto consider = [&](uint32_t left) {
    const MergeTo* merge = find_merge(ids[left], ids[next[left]]);
    if (merge != nullptr) candidates.push({merge->rank, left, merge->result});
  };
  for (uint32_t i = 0; i < count; ++i) {
    next[i] = i + 1 < count ? i + 1 : kEnd;
    previous[i] = i > 0 ? i - 1 : kEnd;
    if (i + 1 < count) consider(i);
  }
  while (!candidates.empty()) {
    const MergeCandidate top = candidates.pop();
    if (ids[top.at] == kNone || next[top.at] == kEnd) continue;
    const uint32_t right = next[top.at];
    const MergeTo* merge = find_merge(ids[top.at], ids[right]);
    if (merge == nullptr || merge->result != top.result) continue;
    ids[top.at] = top.result;
    ids[right] = kNone;
    next[top.at] = next[right];
    if (next[right] != kEnd) previous[next[right]] = top.at;
    if (previous[top.at] != kEnd) consider(previous[top.at]);
    if (next[top.at] != kEnd) consider(top.at);
  }
  std::erase(ids, kNone);
}

void Bpe::emit(const std::vector<TokenId>& ids, std::vector<TokenId>& out) const {
  if (extra_spelling_.empty()) {
    out.insert(out.end(), ids.begin(), ids.end());
    return;
  }
  for (const TokenId id : ids) {
    if (id < extra_first_) {
      out.push_back(id);
    } else if (!fall_back(extra_spelling_[static_cast<size_t>(id - extra_first_)], out) && config_.unk) {
      out.push_back(*config_.unk);
    }
  }
}

}  // namespace shoal
