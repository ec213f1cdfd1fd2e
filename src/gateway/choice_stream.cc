#include "gateway/choice_stream.h"

#include <algorithm>

#include "base/check.h"
#include "base/rng.h"
#include "text/answers/tool_prompt.h"

namespace shoal {
namespace {

uint32_t code_points(std::string_view text) {
  return static_cast<uint32_t>(std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xc0) != 0x80; }));
}

bool is_stop_id(const Request& request, TokenId id) {
  return std::find(request.stop_ids.begin(), request.stop_ids.end(), id) != request.stop_ids.end();
}

}  // namespace

std::string_view finish_name(const ChoiceDelta& delta) {
  return delta.called_tools ? "tool_calls" : finish_reason_name(*delta.finish);
}

ChoiceStream::ChoiceStream(const PreparedRequest& request, const PreparedPrompt& prompt, uint32_t index)
    : request_(request), prompt_(prompt), index_(index), parser_(make_answer_parser(request.answer)),
      detokenizer_(*request.text->tokenizer, request.output.skip_special && parser_ == nullptr),
      matcher_(request.output.stop, request.output.include_stop) {
  // The answer continues the prompt: with its last token as context a leading space is kept, and a character whose
  // bytes began in the prompt is completed.
  detokenizer_.push(prompt.ids.back());
}

ChoiceDelta ChoiceStream::push(const Tokens& tokens) {
  ChoiceDelta delta;
  if (finished_) return delta;
  if (request_.output.pooled) return push_pooled(tokens);
  if (!started_ && request_.output.echo) echo_prompt(tokens.prompt, delta);
  if (!started_ && request_.output.prompt_logprobs) delta.prompt = prompt_scores(tokens.prompt);
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

// A vector comes as the alternatives of one token.
ChoiceDelta ChoiceStream::push_pooled(const Tokens& tokens) {
  ChoiceDelta delta;
  for (const SampledToken& token : tokens.tokens) {
    for (const TokenLogprob& entry : token.top) delta.vector.push_back(entry.logprob);
  }
  finished_ = tokens.finish.has_value();
  if (finished_) delta.finish = FinishReason::kStop;
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

std::vector<PromptScore> ChoiceStream::prompt_scores(const std::vector<SampledToken>& scores) const {
  std::vector<PromptScore> out(1);  // nothing judges the first one
  for (const SampledToken& score : scores) {
    PromptScore& token = out.emplace_back();
    token.candidates.push_back({score.token, score.logprob, score.rank, piece(score.token).text});
    for (uint32_t i = 0; i < std::min<size_t>(score.top.size(), *request_.output.prompt_logprobs); ++i) {
      if (score.top[i].token == score.token) continue;
      token.candidates.push_back({score.top[i].token, score.top[i].logprob, i + 1, piece(score.top[i].token).text});
    }
  }
  return out;
}

void ChoiceStream::push_token(const SampledToken& token, bool is_stop_token, ChoiceDelta& delta) {
  ++completion_tokens_;
  if (parser_ != nullptr && parser_->in_reasoning()) ++reasoning_tokens_;
  if (is_stop_token && !request_.output.include_stop) return;  // its text is not part of the answer
  if (request_.output.logprobs) held_.push_back(scored(token, decoded_chars_));
  if (request_.output.return_ids) delta.ids.push_back(token.token);
  const std::string text = text_of(token.token);
  decoded_chars_ += code_points(text);
  show(text, delta);
}

// The parser sees the special tokens that mean something to it; the others are left out here.
std::string ChoiceStream::text_of(TokenId id) {
  std::string text = detokenizer_.push(id);
  const Tokenizer& tokenizer = *request_.text->tokenizer;
  if (parser_ == nullptr || !request_.output.skip_special || !tokenizer.is_special(id)) return text;
  const std::string spelling = tokenizer.token_bytes(id, /*first=*/false, /*skip_special=*/false);
  if (!request_.answer.format.has_marker(spelling) && text.ends_with(spelling)) text.resize(text.size() - spelling.size());
  return text;
}

// Text of the answer that is certain.
void ChoiceStream::say(std::string_view text, ChoiceDelta& delta) {
  if (parser_ == nullptr) {
    delta.text += text;
    return;
  }
  AnswerDelta said;
  parser_->push(text, said);
  add(std::move(said), delta);
}

void ChoiceStream::add(AnswerDelta said, ChoiceDelta& delta) {
  delta.text += said.content;
  if (request_.include_reasoning) delta.reasoning += said.reasoning;
  for (CallDelta& call : said.calls) {
    if (!call.name.empty() && call.id.empty()) {
      const bool is_short = request_.answer.format.calls->short_ids;
      call.id = call_id(is_short, counter_bits(request_.id_seed, index_, call.index));
    }
    delta.calls.push_back(std::move(call));
  }
}

// `cut`: the model would have gone on.
void ChoiceStream::finish(FinishReason reason, bool cut, ChoiceDelta& delta) {
  finished_ = true;
  delta.finish = reason;
  if (parser_ == nullptr) return;
  AnswerDelta said;
  parser_->finish(cut, said);
  add(std::move(said), delta);
  if (reason != FinishReason::kStop) return;
  if (cut && parser_->in_call()) {
    delta.finish = FinishReason::kLength;  // half a call is no answer that ended
  } else {
    delta.called_tools = parser_->calls() > 0;
  }
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
  say(text, delta);
  release_pieces(delta);
  if (stop) {  // tokens of the stop string alone are not shown
    held_.clear();
    delta.stop = *std::move(stop);
    finish(FinishReason::kStop, /*cut=*/true, delta);
  }
}

void ChoiceStream::end(FinishReason reason, ChoiceDelta& delta) {
  if (completion_tokens_ > 0) show(detokenizer_.flush(), delta);  // else it holds bytes of the prompt at most
  if (finished_) return;
  say(matcher_.flush(), delta);
  delta.pieces.insert(delta.pieces.end(), std::make_move_iterator(held_.begin()), std::make_move_iterator(held_.end()));
  held_.clear();
  finish(reason, /*cut=*/reason == FinishReason::kLength, delta);
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
  const size_t wanted = std::min<size_t>(token.top.size(), *request_.output.logprobs);  // prompts may be scored with more
  for (const TokenLogprob& other : std::span(token.top).first(wanted)) out.top.emplace_back(piece(other.token), other.logprob);
  out.text_offset = offset;
  return out;
}

TokenPiece ChoiceStream::piece(TokenId id) const {
  const Tokenizer& tokenizer = *request_.text->tokenizer;
  TokenPiece out;
  out.id = id;
  out.bytes = tokenizer.token_bytes(id, /*first=*/false, /*skip_special=*/false);
  out.text = request_.output.tokens_as_ids ? absl::StrCat("token_id:", id) : out.bytes;  // dump_json() mends UTF-8
  return out;
}

}  // namespace shoal
