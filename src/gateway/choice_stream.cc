#include "gateway/choice_stream.h"

#include <algorithm>

#include "base/check.h"

namespace shoal {
namespace {

uint32_t code_points(std::string_view text) {
  return static_cast<uint32_t>(std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xc0) != 0x80; }));
}

bool is_stop_id(const Request& request, TokenId id) {
  return std::find(request.stop_ids.begin(), request.stop_ids.end(), id) != request.stop_ids.end();
}

}  // namespace

ChoiceStream::ChoiceStream(const PreparedRequest& request, const PreparedPrompt& prompt)
    : request_(request), prompt_(prompt), detokenizer_(*request.text->tokenizer, request.output.skip_special),
      matcher_(request.output.stop, request.output.include_stop) {
  // The answer continues the prompt: with its last token as context a leading space is kept, and a character whose
  // bytes began in the prompt is completed.
  detokenizer_.push(prompt.ids.back());
}

ChoiceDelta ChoiceStream::push(const Tokens& tokens) {
  ChoiceDelta delta;
  if (finished_) return delta;
  if (!started_ && request_.output.echo) echo_prompt(tokens.prompt, delta);
  started_ = true;
  if (!request_.output.score_only) {
    for (size_t i = 0; i < tokens.tokens.size() && !finished_; ++i) {
      const bool last = i + 1 == tokens.tokens.size() && tokens.finish == FinishReason::kStop;
      push_token(tokens.tokens[i], last && is_stop_id(request_.request, tokens.tokens[i].token), delta);
    }
  }
  if (tokens.finish && !finished_) {
    CHECK(*tokens.finish == FinishReason::kStop || *tokens.finish == FinishReason::kLength);
    end(request_.output.score_only ? FinishReason::kLength : *tokens.finish, delta);
  }
  return delta;
}

void ChoiceStream::echo_prompt(const std::vector<SampledToken>& scores, ChoiceDelta& delta) {
  delta.text = prompt_.text;
  if (request_.output.logprobs) {
    ScoredPiece first;
    first.token = piece(prompt_.ids.front());
    uint32_t offset = code_points(first.token.text);
    delta.pieces.push_back(std::move(first));
    for (const SampledToken& score : scores) {
      delta.pieces.push_back(scored(score, offset));
      offset += code_points(delta.pieces.back().token.text);
    }
  }
  decoded_chars_ = shown_chars_ = code_points(prompt_.text);
}

void ChoiceStream::push_token(const SampledToken& token, bool is_stop_token, ChoiceDelta& delta) {
  ++completion_tokens_;
  if (is_stop_token && !request_.output.include_stop) return;  // its text is not part of the answer
  if (request_.output.logprobs) held_.push_back(scored(token, decoded_chars_));
  const std::string text = detokenizer_.push(token.token);
  decoded_chars_ += code_points(text);
  show(text, delta);
}

void ChoiceStream::show(std::string_view piece, ChoiceDelta& delta) {
  std::string text(piece);
  std::optional<std::string> stop;
  if (completion_tokens_ > request_.output.min_tokens || request_.output.min_tokens == 0) {
    StopMatcher::Result result = matcher_.push(piece);
    text = std::move(result.text);
    stop = std::move(result.stop);
  }
  shown_chars_ += code_points(text);
  delta.text += text;
  release_pieces(delta);
  if (stop) {  // tokens of the stop string alone are not shown
    held_.clear();
    finished_ = true;
    delta.finish = FinishReason::kStop;
  }
}

void ChoiceStream::end(FinishReason reason, ChoiceDelta& delta) {
  if (completion_tokens_ > 0) show(detokenizer_.flush(), delta);  // else it holds bytes of the prompt at most
  if (finished_) return;
  delta.text += matcher_.flush();
  delta.pieces.insert(delta.pieces.end(), std::make_move_iterator(held_.begin()), std::make_move_iterator(held_.end()));
  held_.clear();
  finished_ = true;
  delta.finish = reason;
}

void ChoiceStream::release_pieces(ChoiceDelta& delta) {
  size_t shown = 0;
  while (shown < held_.size() && held_[shown].text_offset < shown_chars_) ++shown;
  delta.pieces.insert(delta.pieces.end(), std::make_move_iterator(held_.begin()),
                      std::make_move_iterator(held_.begin() + static_cast<ptrdiff_t>(shown)));
  held_.erase(held_.begin(), held_.begin() + static_cast<ptrdiff_t>(shown));
}

ScoredPiece ChoiceStream::scored(const SampledToken& token, uint32_t offset) const {
  ScoredPiece out;
  out.token = piece(token.token);
  out.logprob = token.logprob;
  for (const TokenLogprob& other : token.top) out.top.emplace_back(piece(other.token), other.logprob);
  out.text_offset = offset;
  return out;
}

TokenPiece ChoiceStream::piece(TokenId id) const {
  const Tokenizer& tokenizer = *request_.text->tokenizer;
  TokenPiece out;
  out.bytes = tokenizer.token_bytes(id, /*first=*/false, /*skip_special=*/false);
  out.text = request_.output.tokens_as_ids ? absl::StrCat("token_id:", id) : out.bytes;  // dump_json() mends UTF-8
  return out;
}

}  // namespace shoal
