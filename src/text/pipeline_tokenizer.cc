#include "text/pipeline_tokenizer.h"

#include "text/unicode.h"

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
  out.reserve(text.text.size() / 3 + 8);
  if (options.add_special) out = parts_.post.before;
  if (raw_matcher_.empty()) {
    encode_segment(std::move(text), true, options.parse_special, out);
  } else {
    for (const auto& segment : raw_matcher_.split(text, options.parse_special)) {
      if (segment.id >= 0) {
        out.push_back(segment.id);
      } else {
        encode_segment(text.sub(segment.begin, segment.end), segment.begin == 0, options.parse_special, out);
      }
    }
  }
  if (options.add_special) out.insert(out.end(), parts_.post.after.begin(), parts_.post.after.end());
  return out;
}

void PipelineTokenizer::encode_segment(MarkedText text, bool at_start, bool parse_special, std::vector<TokenId>& out) const {
  if (parts_.normalizer) parts_.normalizer->apply(text);
  if (normalized_matcher_.empty()) return encode_plain(std::move(text.text), at_start, out);
  for (const auto& segment : normalized_matcher_.split(text, parse_special)) {
    if (segment.id >= 0) {
      out.push_back(segment.id);
    } else {
      encode_plain(text.text.substr(segment.begin, segment.end - segment.begin), at_start && segment.begin == 0, out);
    }
  }
}

void PipelineTokenizer::encode_plain(std::string text, bool at_start, std::vector<TokenId>& out) const {
  if (text.empty()) return;
  Pieces pieces{std::move(text), {}, at_start};
  pieces.ranges.push_back({0, pieces.text.size()});
  if (parts_.pre_tokenizer) parts_.pre_tokenizer->apply(pieces);
  const std::string_view all = pieces.text;
  for (const auto& range : pieces.ranges) parts_.model->encode(all.substr(range.begin, range.end - range.begin), out);
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
