#include "text/tokenizer/token_vocabulary.h"

#include <algorithm>

#include "base/check.h"

namespace shoal {
namespace {

constexpr size_t kTokenBytesMax = 60'000;  // depths are 16 bits; a longer token matches nothing

}  // namespace

TokenVocabulary::TokenVocabulary(std::vector<Token> tokens, uint32_t size) : size_(size), offsets_(size + 1, 0), control_(size, false) {
  std::sort(tokens.begin(), tokens.end(), [](const Token& a, const Token& b) { return a.id < b.id; });
  uint32_t next = 0;
  for (const Token& token : tokens) {
    CHECK(token.id >= static_cast<TokenId>(next) && static_cast<uint32_t>(token.id) < size);
    for (; next <= static_cast<uint32_t>(token.id); ++next) offsets_[next] = static_cast<uint32_t>(text_.size());
    if (token.bytes.size() <= kTokenBytesMax) text_ += token.bytes;
    control_[static_cast<size_t>(token.id)] = token.control;
    if (!token.bytes.empty()) ids_.emplace(token.bytes, token.id);
    token_bytes_max_ = std::max(token_bytes_max_, std::min(token.bytes.size(), kTokenBytesMax));
  }
  for (; next <= size; ++next) offsets_[next] = static_cast<uint32_t>(text_.size());
  build_trie();
}

std::shared_ptr<const TokenVocabulary> TokenVocabulary::of(const Tokenizer& tokenizer) {
  std::vector<Token> tokens;
  tokens.reserve(tokenizer.vocab_size());
  for (uint32_t i = 0; i < tokenizer.vocab_size(); ++i) {
    const auto id = static_cast<TokenId>(i);
    const bool control = tokenizer.is_special(id);
    std::string bytes = control ? tokenizer.token_text(id) : tokenizer.token_bytes(id, /*first=*/false, /*skip_special=*/false);
    if (!bytes.empty()) tokens.push_back({id, std::move(bytes), control});
  }
  return std::make_shared<const TokenVocabulary>(std::move(tokens), tokenizer.vocab_size());
}

std::string_view TokenVocabulary::bytes(TokenId id) const {
  if (id < 0 || static_cast<uint32_t>(id) >= size_) return {};
  const auto i = static_cast<size_t>(id);
  return std::string_view(text_).substr(offsets_[i], offsets_[i + 1] - offsets_[i]);
}

bool TokenVocabulary::is_control(TokenId id) const {
  return id >= 0 && static_cast<uint32_t>(id) < size_ && control_[static_cast<size_t>(id)];
}

std::optional<TokenId> TokenVocabulary::token_id(std::string_view spelling) const {
  const auto found = ids_.find(spelling);
  return found == ids_.end() ? std::nullopt : std::optional(found->second);
}

void TokenVocabulary::build_trie() {
  for (uint32_t i = 0; i < size_; ++i) {
    const auto id = static_cast<TokenId>(i);
    if (!control_[i] && !bytes(id).empty()) sorted_.push_back(id);
  }
  std::sort(sorted_.begin(), sorted_.end(), [this](TokenId a, TokenId b) {
    const int order = bytes(a).compare(bytes(b));
    return order != 0 ? order < 0 : a < b;
  });
  std::vector<uint32_t> path = {0};  // the nodes from the root to where the last token ended
  trie_.push_back({});
  std::string_view last;
  for (uint32_t i = 0; i < sorted_.size(); ++i) {
    const std::string_view now = bytes(sorted_[i]);
    const auto common = static_cast<size_t>(std::mismatch(last.begin(), last.begin() + static_cast<ptrdiff_t>(std::min(last.size(), now.size())), now.begin()).first - last.begin());
    for (; path.size() > common + 1; path.pop_back()) trie_[path.back()].subtree_end = static_cast<uint32_t>(trie_.size());
    for (size_t at = common; at < now.size(); ++at) {
      path.push_back(static_cast<uint32_t>(trie_.size()));
      trie_.push_back({0, i, static_cast<uint16_t>(at + 1), static_cast<uint8_t>(now[at])});
    }
    last = now;
  }
  for (; !path.empty(); path.pop_back()) trie_[path.back()].subtree_end = static_cast<uint32_t>(trie_.size());
  trie_.push_back({static_cast<uint32_t>(trie_.size()) + 1, static_cast<uint32_t>(sorted_.size()), 0, 0});
}

}  // namespace shoal
