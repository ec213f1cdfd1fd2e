#include "text/unigram.h"

#include <algorithm>

#include "text/unicode.h"

namespace shoal {
namespace {

constexpr double kUnknownPenalty = 10.0;

}  // namespace

Unigram::Unigram(UnigramConfig config) : config_(std::move(config)) {
  std::vector<ByteTrie::Entry> entries;
  entries.reserve(config_.pieces.size());
  for (const auto& piece : config_.pieces) {
    ids_.emplace(piece.text, piece.id);
    entries.push_back({piece.text, static_cast<int32_t>(entries.size())});
  }
  trie_ = ByteTrie(std::move(entries));
}

// The best way to reach each byte of the piece.
std::vector<Unigram::Best> Unigram::search(std::string_view piece) const {
  std::vector<Best> best(piece.size() + 1);
  const double unknown_score = config_.score_min - kUnknownPenalty;
  for (size_t at = 0; at < piece.size();) {
    const size_t symbol_end = std::min(at + unicode::step(piece, at), piece.size());
    const double here = best[at].score;
    bool symbol_is_token = false;
    const auto offer = [&](size_t end, double score, int32_t token) {
      if (best[end].begin == UINT32_MAX || score > best[end].score) best[end] = {score, static_cast<uint32_t>(at), token};
    };
    uint32_t node = trie_.first(static_cast<uint8_t>(piece[at]));
    for (size_t end = at + 1; node != ByteTrie::kNone; ++end) {
      if (const int32_t token = trie_.value(node); token >= 0) {
        offer(end, here + config_.pieces[static_cast<size_t>(token)].score, token);
        symbol_is_token |= end == symbol_end;
      }
      if (end == piece.size()) break;
      node = trie_.next(node, static_cast<uint8_t>(piece[end]));
    }
    if (!symbol_is_token) offer(symbol_end, here + unknown_score, -1);
    at = symbol_end;
  }
  return best;
}

void Unigram::encode(std::string_view piece, std::vector<TokenId>& out) const {
  const std::vector<Best> best = search(piece);
  // Backwards along the best path; adjacent unknown symbols are one.
  struct Cut {
    size_t begin, end;
    int32_t piece;
  };
  std::vector<Cut> cuts;
  for (size_t end = piece.size(); end > 0;) {
    const Best& b = best[end];
    if (b.piece < 0 && !cuts.empty() && cuts.back().piece < 0) {
      cuts.back().begin = b.begin;
    } else {
      cuts.push_back({b.begin, end, b.piece});
    }
    end = b.begin;
  }
  for (auto cut = cuts.rbegin(); cut != cuts.rend(); ++cut) {
    if (cut->piece >= 0) {
      out.push_back(config_.pieces[static_cast<size_t>(cut->piece)].id);
    } else {
      emit_unknown(piece.substr(cut->begin, cut->end - cut->begin), out);
    }
  }
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
