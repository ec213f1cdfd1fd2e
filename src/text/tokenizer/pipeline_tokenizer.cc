#include "text/tokenizer/pipeline_tokenizer.h"

#include <algorithm>

#include "text/tokenizer/unicode.h"

namespace shoal {

class PipelineTokenizer::Stream : public TokenStream {
 public:
  Stream(const PipelineTokenizer& tokenizer, bool skip_special)
      : tokenizer_(tokenizer), skip_special_(skip_special), decoder_(tokenizer.parts_.decoder.clone()) {}
  std::string push(TokenId id) override {
    const std::string* spelling = tokenizer_.find(id);
    if (spelling == nullptr || (skip_special_ && tokenizer_.is_special(id))) return {};
    return decoder_.push(*spelling);
  }
  std::string finish() override { return decoder_.finish(); }

 private:
  const PipelineTokenizer& tokenizer_;
  const bool skip_special_;
  Decoder decoder_;
};

PipelineTokenizer::PipelineTokenizer(TokenizerParts parts) : parts_(std::move(parts)) {
  std::vector<AddedToken> raw, normalized;
  std::vector<std::string> raw_contents, normalized_contents;
  for (const AddedToken& token : parts_.added) {
    if (!token.normalized) {
      raw.push_back(token);
      raw_contents.push_back(token.content);
      continue;
    }
    MarkedText content{token.content, {}};
    if (parts_.normalizer) parts_.normalizer->apply(content);
    if (!content.text.empty()) parts_.spellings[static_cast<size_t>(token.id)] = content.text;  // it decodes to that, too
    normalized.push_back(token);
    normalized_contents.push_back(std::move(content.text));
  }
  raw_matcher_ = AddedTokenMatcher(std::move(raw), raw_contents);
  normalized_matcher_ = AddedTokenMatcher(std::move(normalized), normalized_contents);
  token_bytes_max_ = token_bytes_max();
}

std::vector<TokenId> PipelineTokenizer::encode(std::string_view text, const EncodeOptions& options) const {
  return encode_marked({unicode::is_valid(text) ? std::string(text) : unicode::sanitize(text), {}}, options);
}

std::vector<TokenId> PipelineTokenizer::encode(std::span<const TextPart> parts, const EncodeOptions& options) const {
  MarkedText text;
  for (const TextPart& part : parts) {
    const size_t before = text.text.size();
    if (unicode::is_valid(part.text)) {
      text.text += part.text;
    } else {
      text.text += unicode::sanitize(part.text);
    }
    if (part.trusted && text.marks.empty()) continue;
    text.marks.resize(before, MarkedText::kTrusted);
    text.marks.resize(text.text.size(), part.trusted ? MarkedText::kTrusted : MarkedText::kUntrusted);
  }
  return encode_marked(std::move(text), options);
}

std::vector<TokenId> PipelineTokenizer::encode_marked(MarkedText text, const EncodeOptions& options) const {
  std::vector<TokenId> out;
  out.reserve(std::min(text.text.size() / 3, options.tokens_max) + 8);
  if (options.add_special) out = parts_.post.before;
  bool whole = true;
  if (raw_matcher_.empty()) {
    whole = encode_segment(std::move(text), true, options, out);
  } else {
    raw_matcher_.for_each_segment(text, options.parse_special, [&](const AddedTokenMatcher::Segment& segment) {
      if (segment.id >= 0) out.push_back(segment.id);
      whole = segment.id >= 0 ? out.size() <= options.tokens_max
                              : encode_segment(text.sub(segment.begin, segment.end), segment.begin == 0, options, out);
      return whole;
    });
  }
  if (whole && options.add_special) out.insert(out.end(), parts_.post.after.begin(), parts_.post.after.end());
  return out;
}

bool PipelineTokenizer::encode_segment(MarkedText text, bool at_start, const EncodeOptions& options, std::vector<TokenId>& out) const {
  if (parts_.normalizer) parts_.normalizer->apply(text);
  const std::string_view all = text.text;
  if (normalized_matcher_.empty()) return encode_plain(all, at_start, options.tokens_max, out);
  bool whole = true;
  normalized_matcher_.for_each_segment(text, options.parse_special, [&](const AddedTokenMatcher::Segment& segment) {
    if (segment.id >= 0) out.push_back(segment.id);
    whole = segment.id >= 0 ? out.size() <= options.tokens_max
                            : encode_plain(all.substr(segment.begin, segment.end - segment.begin), at_start && segment.begin == 0,
                                           options.tokens_max, out);
    return whole;
  });
  return whole;
}

bool PipelineTokenizer::encode_plain(std::string_view text, bool at_start, size_t tokens_max, std::vector<TokenId>& out) const {
  if (text.empty()) return true;
  struct ModelSink : PieceSink {
    ModelSink(const TokenModel& m, size_t max, std::vector<TokenId>& ids) : model(m), tokens_max(max), out(ids) {}
    bool take(std::string_view piece) override {
      model.encode(piece, tokens_max, out);
      return out.size() <= tokens_max;
    }
    const TokenModel& model;
    const size_t tokens_max;
    std::vector<TokenId>& out;
  } model(*parts_.model, tokens_max, out);
  return parts_.pre_tokenizer ? parts_.pre_tokenizer->open(model, at_start)->take(text) : model.take(text);
}

// Every step may only give less text than it was given by as much as it says it may.
size_t PipelineTokenizer::token_bytes_max() const {
  const size_t shrink = parts_.normalizer ? parts_.normalizer->shrink_max() : 1;
  const bool keeps_all = parts_.pre_tokenizer == nullptr || parts_.pre_tokenizer->keeps_all();
  size_t longest = parts_.model->token_bytes_max();
  if (longest == 0 || !keeps_all) return 0;
  for (const AddedToken& token : parts_.added) {
    if (token.lstrip || token.rstrip) return 0;  // takes any number of spaces along
    longest = std::max({longest, token.content.size(), parts_.spellings[static_cast<size_t>(token.id)].size()});
  }
  return longest * shrink;
}

uint64_t PipelineTokenizer::tokens_min(uint64_t bytes) const {
  return token_bytes_max_ == 0 ? 0 : bytes / token_bytes_max_;
}

std::string PipelineTokenizer::decode(std::span<const TokenId> ids, bool skip_special) const {
  Stream stream(*this, skip_special);
  std::string bytes;
  for (const TokenId id : ids) bytes += stream.push(id);
  bytes += stream.finish();
  return unicode::is_valid(bytes) ? bytes : unicode::sanitize(bytes);
}

std::string PipelineTokenizer::token_bytes(TokenId id, bool first, bool skip_special) const {
  const std::string* spelling = find(id);
  if (spelling == nullptr || (skip_special && is_special(id))) return {};
  if (parts_.byte_tokens) {
    if (const int byte = byte_token_value(*spelling); byte >= 0) return std::string(1, static_cast<char>(byte));
  }
  Decoder decoder = parts_.decoder.clone();
  if (!first) decoder.skip_first();
  std::string bytes = decoder.push(*spelling);
  return bytes + decoder.finish();
}

std::unique_ptr<TokenStream> PipelineTokenizer::open_stream(bool skip_special) const {
  return std::make_unique<Stream>(*this, skip_special);
}

std::string PipelineTokenizer::token_text(TokenId id) const {
  const std::string* spelling = find(id);
  return spelling == nullptr ? std::string() : *spelling;
}

std::optional<TokenId> PipelineTokenizer::token_id(std::string_view spelling) const {
  const auto it = parts_.ids.find(spelling);
  return it == parts_.ids.end() ? std::nullopt : std::optional(it->second);
}

const std::string* PipelineTokenizer::find(TokenId id) const {
  if (id < 0 || static_cast<size_t>(id) >= parts_.spellings.size()) return nullptr;
  const std::string& spelling = parts_.spellings[static_cast<size_t>(id)];
  return spelling.empty() ? nullptr : &spelling;
}

}  // namespace shoal
