#include "text/tokenizer/added_tokens.h"

#include "text/tokenizer/unicode.h"

namespace shoal {

AddedTokenMatcher::AddedTokenMatcher(std::vector<AddedToken> tokens, const std::vector<std::string>& contents)
    : tokens_(std::move(tokens)) {
  std::vector<ByteTrie::Entry> entries;
  for (size_t i = 0; i < tokens_.size(); ++i) entries.push_back({contents[i], static_cast<int32_t>(i)});
  trie_ = ByteTrie(std::move(entries));
}

AddedTokenMatcher::Match AddedTokenMatcher::longest_at(const MarkedText& text, size_t at) const {
  Match best;
  uint32_t node = trie_.first(static_cast<uint8_t>(text.text[at]));
  for (size_t end = at + 1; node != ByteTrie::kNone; ++end) {
    if (const int32_t index = trie_.value(node); index >= 0) {
      const bool special = tokens_[static_cast<size_t>(index)].special;
      if (special ? !text.untrusted(at, end) : !hides_trusted_special(text, at, end)) best = {end, index};
    }
    if (end == text.text.size()) break;
    node = trie_.next(node, static_cast<uint8_t>(text.text[end]));
  }
  return best;
}

// Whether an ordinary token over [begin, end) has untrusted bytes and would swallow (the beginning of) a special token
// that the template wrote: a user must not be able to break those either.
bool AddedTokenMatcher::hides_trusted_special(const MarkedText& text, size_t begin, size_t end) const {
  if (!text.untrusted(begin, end)) return false;
  for (size_t at = begin; at < end; ++at) {
    if (text.marks[at] == MarkedText::kUntrusted) continue;
    uint32_t node = trie_.first(static_cast<uint8_t>(text.text[at]));
    for (size_t stop = at + 1; node != ByteTrie::kNone; ++stop) {
      const int32_t index = trie_.value(node);
      if (index >= 0 && tokens_[static_cast<size_t>(index)].special && !text.untrusted(at, stop)) return true;
      if (stop == text.text.size()) break;
      node = trie_.next(node, static_cast<uint8_t>(text.text[stop]));
    }
  }
  return false;
}

bool AddedTokenMatcher::is_single_word(const std::string& text, size_t begin, size_t end) const {
  size_t bytes = 0;
  if (begin > 0 && unicode::is_word(unicode::decode_last(text, begin, &bytes))) return false;
  return end == text.size() || !unicode::is_word(unicode::decode(text, end, &bytes));
}

void AddedTokenMatcher::for_each_segment(const MarkedText& text, bool parse_special, absl::FunctionRef<bool(const Segment&)> f) const {
  const std::string& s = text.text;
  size_t done = 0, bytes = 0;
  for (size_t at = 0; at < s.size() && !tokens_.empty();) {
    const Match match = longest_at(text, at);
    if (match.token < 0) {
      ++at;
      continue;
    }
    const AddedToken& token = tokens_[static_cast<size_t>(match.token)];
    size_t begin = at, end = match.end;
    at = match.end;
    if (token.special && !parse_special) continue;
    if (token.single_word && !is_single_word(s, begin, end)) continue;
    if (begin < done) continue;  // its beginning went to the white space of the token before
    while (token.lstrip && begin > done && unicode::is_whitespace(unicode::decode_last(s, begin, &bytes))) begin -= bytes;
    while (token.rstrip && end < s.size() && unicode::is_whitespace(unicode::decode(s, end, &bytes))) end += bytes;
    if (done < begin && !f({done, begin, -1})) return;
    if (!f({begin, end, token.id})) return;
    done = end;
  }
  if (done < s.size()) f({done, s.size(), -1});
}

}  // namespace shoal
