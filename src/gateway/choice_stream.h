// One choice of an answer: tokens in, text out, with the log-probabilities that belong to the text shown.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "gateway/prepare.h"
#include "text/tokenizer/detokenizer.h"
#include "wire/message.h"

namespace shoal {

// A token as clients see it.
struct TokenPiece {
  std::string text;   // valid UTF-8, or "token_id:N"
  std::string bytes;  // exactly what the token adds
  TokenId id = 0;
};

struct ScoredPiece {
  TokenPiece token;
  std::optional<float> logprob;  // none for the first token of a prompt
  std::vector<std::pair<TokenPiece, float>> top;
  uint32_t text_offset = 0;      // code points of the choice's text before this token
};

// A token of the prompt: how likely it was, and the most likely ones in its place.
struct PromptScore {
  struct Candidate {
    TokenId id = 0;
    float logprob = 0.0f;
    uint32_t rank = 0;   // 1: the most likely
    std::string text;
  };
  std::vector<Candidate> candidates;  // the prompt's own token first; empty for the first token of a prompt
};

struct ChoiceDelta {
  std::string text;                      // may be empty: nothing can be shown yet
  std::string reasoning;                 // of a chat, as are calls
  std::vector<CallDelta> calls;          // every call that begins has an id
  std::vector<ScoredPiece> pieces;       // only if log-probabilities were asked for
  std::vector<TokenId> ids;              // likewise: tokens that were generated, shown by now or not
  std::vector<float> vector;             // of a pooled model, once: its answer
  std::vector<PromptScore> prompt;       // once, if they were asked for: one for each token of the prompt
  std::optional<FinishReason> finish;    // kStop or kLength; nothing follows
  bool called_tools = false;             // with `finish`: the answer ended with calls
  std::string stop;                      // with `finish`: the stop string that ended it; empty: none did

  bool shows_nothing() const { return text.empty() && reasoning.empty() && calls.empty() && pieces.empty() && ids.empty(); }
};

// "stop", "length" or "tool_calls". REQUIRES: delta.finish.
std::string_view finish_name(const ChoiceDelta& delta);

class ChoiceStream {
 public:
  // `request` outlives this; `index` is the choice's place in the answer.
  ChoiceStream(const PreparedRequest& request, const PreparedPrompt& prompt, uint32_t index = 0);

  // The next tokens of the choice, in order. After a delta with `finish` further calls give nothing.
  // REQUIRES: `tokens.finish` is none of kError, kCancelled.
  ChoiceDelta push(const Tokens& tokens);

  bool finished() const { return finished_; }
  uint32_t completion_tokens() const { return completion_tokens_; }
  uint32_t reasoning_tokens() const { return reasoning_tokens_; }  // of them

 private:
  ChoiceDelta push_pooled(const Tokens& tokens);
  void echo_prompt(const std::vector<SampledToken>& scores, ChoiceDelta& delta);
  std::vector<PromptScore> prompt_scores(const std::vector<SampledToken>& scores) const;
  void push_token(const SampledToken& token, bool is_stop_token, ChoiceDelta& delta);
  std::string text_of(TokenId id);
  void show(std::string_view piece, ChoiceDelta& delta);
  void say(std::string_view text, ChoiceDelta& delta);
  void add(AnswerDelta said, ChoiceDelta& delta);
  void finish(FinishReason reason, bool cut, ChoiceDelta& delta);
  void end(FinishReason reason, ChoiceDelta& delta);
  void release_pieces(ChoiceDelta& delta);
  ScoredPiece scored(const SampledToken& token, uint32_t offset) const;
  TokenPiece piece(TokenId id) const;

  const PreparedRequest& request_;
  const PreparedPrompt& prompt_;
  const uint32_t index_;
  std::unique_ptr<AnswerParser> parser_;  // null: all text is content
  Detokenizer detokenizer_;
  StopMatcher matcher_;
  std::vector<ScoredPiece> held_;   // of text that cannot be shown yet
  uint32_t decoded_chars_ = 0;      // code points out of the detokenizer
  uint32_t shown_chars_ = 0;        // code points out of the stop matcher
  uint32_t completion_tokens_ = 0;
  uint32_t reasoning_tokens_ = 0;
  bool started_ = false;
  bool finished_ = false;
};

}  // namespace shoal
