#include "text/tokenizer/detokenizer.h"

#include <algorithm>

#include "text/tokenizer/unicode.h"

namespace shoal {
namespace {

// For tokenizers that know no more context than whether a token is the first.
class PointwiseStream : public TokenStream {
 public:
  PointwiseStream(const Tokenizer& tokenizer, bool skip_special) : tokenizer_(tokenizer), skip_special_(skip_special) {}
  std::string push(TokenId id) override {
    if (skip_special_ && tokenizer_.is_special(id)) return {};
    return tokenizer_.token_bytes(id, std::exchange(first_, false), skip_special_);
  }
  std::string finish() override { return {}; }

 private:
  const Tokenizer& tokenizer_;
  const bool skip_special_;
  bool first_ = true;
};

}  // namespace

std::unique_ptr<TokenStream> Tokenizer::open_stream(bool skip_special) const {
  return std::make_unique<PointwiseStream>(*this, skip_special);
}

Detokenizer::Detokenizer(const Tokenizer& tokenizer, bool skip_special) : stream_(tokenizer.open_stream(skip_special)) {}

std::string Detokenizer::push(TokenId id) {
  held_ += stream_->push(id);
  const size_t ready = held_.size() - unicode::unfinished_suffix(held_);
  std::string text = unicode::sanitize(std::string_view(held_).substr(0, ready));
  held_.erase(0, ready);
  return text;
}

std::string Detokenizer::flush() {
  held_ += stream_->finish();
  std::string text = unicode::sanitize(held_);
  held_.clear();
  return text;
}

StopMatcher::StopMatcher(std::vector<std::string> stops, bool include_stop)
    : stops_(std::move(stops)), include_stop_(include_stop) {
  std::erase_if(stops_, [](const std::string& stop) { return stop.empty(); });
}

StopMatcher::Result StopMatcher::push(std::string_view piece) {
  if (stopped_) return {};
  held_ += piece;
  size_t begin = 0, end = std::string::npos;
  const std::string* found = nullptr;
  for (const std::string& stop : stops_) {
    const size_t at = held_.find(stop);
    if (at == std::string::npos || at + stop.size() > end || (at + stop.size() == end && at >= begin)) continue;
    begin = at, end = at + stop.size(), found = &stop;
  }
  if (found != nullptr) {
    Result result{held_.substr(0, include_stop_ ? end : begin), *found};
    stopped_ = true;
    held_.clear();
    return result;
  }
  size_t open = held_.size();  // from here on the text may yet become a stop
  for (const std::string& stop : stops_) {
    for (size_t n = std::min(stop.size() - 1, held_.size()); n > held_.size() - open; --n) {
      if (held_.compare(held_.size() - n, n, stop, 0, n) == 0) open = held_.size() - n;
    }
  }
  Result result{held_.substr(0, open), std::nullopt};
  held_.erase(0, open);
  return result;
}

std::string StopMatcher::flush() {
  std::string rest = std::move(held_);
  held_.clear();
  return rest;
}

}  // namespace shoal
