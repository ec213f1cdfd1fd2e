#include "text/tokenizer/unigram.h"

#include <algorithm>

#include "text/tokenizer/unicode.h"

namespace shoal {
namespace {

constexpr double kUnknownPenalty = 10.0;
constexpr size_t kWindowBytes = 4096;

}  // namespace

Unigram::Unigram(UnigramConfig config) : config_(std::move(config)) {
  std::vector<ByteTrie::Entry> entries;
  entries.reserve(config_.pieces.size());
  for (const auto& piece : config_.pieces) {
    ids_.emplace(piece.text, piece.id);
    entries.push_back({piece.text, static_cast<int32_t>(entries.size())});
  }
  trie_ = ByteTrie(std::move(entries));
  const auto& bytes = config_.byte_tokens;
  all_bytes_known_ = config_.byte_fallback && std::all_of(bytes.begin(), bytes.end(), [](TokenId id) { return id >= 0; });
}

// The best ways to reach the bytes of a piece: a window of them, from `begin_` on, which every best path passes.
class Unigram::Search {
 public:
  Search(const Unigram& model, std::string_view piece, std::vector<TokenId>& out)
      : model_(model), piece_(piece), unknown_score_(model.config_.score_min - kUnknownPenalty), window_(1), out_(out) {}

  // Offers what begins at `at` to the places where it ends; the next symbol's beginning.
  size_t advance(size_t at) {
    const size_t symbol_end = std::min(at + unicode::step(piece_, at), piece_.size());
    const double here = window_[at - begin_].score;
    bool symbol_is_token = false;
    const ByteTrie& trie = model_.trie_;
    uint32_t node = trie.first(static_cast<uint8_t>(piece_[at]));
    for (size_t end = at + 1; node != ByteTrie::kNone; ++end) {
      if (const int32_t token = trie.value(node); token >= 0) {
        offer(at, end, here + model_.config_.pieces[static_cast<size_t>(token)].score, token);
        symbol_is_token |= end == symbol_end;
      }
      if (end == piece_.size()) break;
      node = trie.next(node, static_cast<uint8_t>(piece_[end]));
    }
    if (!symbol_is_token) offer(at, symbol_end, here + unknown_score_, -1);
    return symbol_end;
  }

  // REQUIRES: everything before `at` has been offered. Every path passes one of the places from `at` on by the best way
  // there as it is now; where these ways meet, what is before is decided, and is written.
  void settle(size_t at) {
    std::vector<size_t> live;
    for (size_t end = at; end < begin_ + window_.size(); ++end) {
      if (end == at || window_[end - begin_].begin != kUnreached) live.push_back(end);
    }
    std::make_heap(live.begin(), live.end());
    while (live.size() > 1) {  // a heap of places, the last one first; equal ones meet
      std::pop_heap(live.begin(), live.end());
      const size_t last = live.back();
      live.pop_back();
      if (live.front() == last) continue;
      live.push_back(window_[last - begin_].begin);
      std::push_heap(live.begin(), live.end());
    }
    write_until(live.front());
  }
  size_t window_bytes() const { return window_.size(); }

  void finish() {
    write_until(piece_.size());
    write_unknown();
  }

 private:
  static constexpr size_t kUnreached = SIZE_MAX;
  struct Best {
    double score = 0;
    size_t begin = kUnreached;
    int32_t piece = -1;  // -1: unknown symbol
  };

  void offer(size_t at, size_t end, double score, int32_t token) {
    if (end - begin_ >= window_.size()) window_.resize(end - begin_ + 1);
    Best& best = window_[end - begin_];
    if (best.begin == kUnreached || score > best.score) best = {score, at, token};
  }

  // Writes the best path from begin_ to `end`, which begins the window from now on. Adjacent unknown symbols are one.
  void write_until(size_t end) {
    std::vector<size_t> ends;
    for (size_t at = end; at > begin_; at = window_[at - begin_].begin) ends.push_back(at);
    for (auto at = ends.rbegin(); at != ends.rend(); ++at) {
      const Best& best = window_[*at - begin_];
      if (best.piece < 0) {
        if (unknown_begin_ == unknown_end_) unknown_begin_ = best.begin;
        unknown_end_ = *at;
        continue;
      }
      write_unknown();
      out_.push_back(model_.config_.pieces[static_cast<size_t>(best.piece)].id);
    }
    window_.erase(window_.begin(), window_.begin() + static_cast<ptrdiff_t>(end - begin_));
    begin_ = end;
  }
  void write_unknown() {
    if (unknown_begin_ != unknown_end_) model_.emit_unknown(piece_.substr(unknown_begin_, unknown_end_ - unknown_begin_), out_);
    unknown_begin_ = unknown_end_;
  }

  const Unigram& model_;
  const std::string_view piece_;
  const double unknown_score_;
  std::vector<Best> window_;
  size_t begin_ = 0;
  size_t unknown_begin_ = 0, unknown_end_ = 0;  // a run that the next symbol may belong to
  std::vector<TokenId>& out_;
};

void Unigram::encode(std::string_view piece, size_t tokens_max, std::vector<TokenId>& out) const {
  Search search(*this, piece, out);
  size_t settle_at = kWindowBytes;
  for (size_t at = 0; at < piece.size() && out.size() <= tokens_max;) {
    at = search.advance(at);
    if (search.window_bytes() < settle_at) continue;
    search.settle(at);
    settle_at = 2 * search.window_bytes() + kWindowBytes;  // where ways never meet, time stays linear
  }
  if (out.size() <= tokens_max) search.finish();
}

size_t Unigram::token_bytes_max() const {
  if (!all_bytes_known_) return 0;
  size_t longest = 1;
  for (const auto& piece : config_.pieces) longest = std::max(longest, piece.text.size());
  return longest;
}

void Unigram::emit_unknown(std::string_view text, std::vector<TokenId>& out) const {
  if (const auto it = ids_.find(text); it != ids_.end()) {
    out.push_back(it->second);
    return;
  }
  const auto token = [&](char b) { return config_.byte_tokens[static_cast<uint8_t>(b)]; };
  if (config_.byte_fallback && std::all_of(text.begin(), text.end(), [&](char b) { return token(b) >= 0; })) {
    for (const char b : text) out.push_back(token(b));
  } else if (config_.unk) {
    out.push_back(*config_.unk);
  }
}

}  // namespace shoal
