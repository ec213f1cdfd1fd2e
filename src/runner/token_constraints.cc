#include "runner/token_constraints.h"

#include <algorithm>
#include <numeric>

#include "base/check.h"

namespace shoal {
namespace {

constexpr size_t kWalksMax = 2048;
constexpr size_t kCompiledMax = 1024;
constexpr size_t kCompiledBytesMax = 512u << 20;  // of all grammars of the model together

}  // namespace

StatusOr<std::list<TokenConstraints::Compiled>::iterator> TokenConstraints::compiled(const GrammarRef& grammar) {
  if (const auto known = by_grammar_.find(Key{grammar}); known != by_grammar_.end()) return known->second;
  if (!vocabulary_) {
    if (!source_) return unimplemented("this node has no vocabulary for the model, so it cannot follow grammars");
    ASSIGN_OR_RETURN(vocabulary_, source_());
  }
  ASSIGN_OR_RETURN(std::unique_ptr<GrammarMatcher> made, GrammarMatcher::create(*grammar, vocabulary_));
  compiled_.push_front({grammar, std::move(made)});
  by_grammar_[Key{grammar}] = compiled_.begin();
  return compiled_.begin();
}

// What is given up here is compiled again, and replayed, when it is asked for.
void TokenConstraints::keep_within_limits() {
  const auto bytes = [this] {
    return std::accumulate(compiled_.begin(), compiled_.end(), size_t{0}, [](size_t sum, const Compiled& c) { return sum + c.matcher->bytes(); });
  };
  while (compiled_.size() > 1 && (compiled_.size() > kCompiledMax || bytes() > kCompiledBytesMax)) {
    const auto last = std::prev(compiled_.end());
    for (Walk& walk : walks_) {
      if (walk.compiled == last) walk.compiled.reset();
    }
    by_grammar_.erase(Key{last->grammar});
    compiled_.pop_back();
  }
  while (walks_.size() > kWalksMax) {
    by_request_.erase(walks_.back().request);
    walks_.pop_back();
  }
}

// The request's walk, brought to the end of `output`.
StatusOr<TokenConstraints::Walk*> TokenConstraints::walk_to(const Request& request, std::span<const TokenId> output) {
  const auto known = by_request_.find(request.id);
  if (known != by_request_.end()) {
    walks_.splice(walks_.begin(), walks_, known->second);
  } else {
    walks_.push_front({request.id, {}, {}, {}, {}});
    by_request_[request.id] = walks_.begin();
  }
  Walk& walk = walks_.front();
  const bool same = walk.compiled && walk.grammar == request.sampling.grammar;
  if (!same) {
    walk.grammar = request.sampling.grammar;
    walk.compiled.reset();
    ASSIGN_OR_RETURN(walk.compiled, compiled(request.sampling.grammar));
  }
  compiled_.splice(compiled_.begin(), compiled_, *walk.compiled);
  GrammarMatcher& matcher = *(*walk.compiled)->matcher;
  matcher.trim();
  keep_within_limits();
  const bool goes_on = same && walk.at.generation == matcher.generation() && walk.tokens.size() <= output.size() &&
                       std::equal(walk.tokens.begin(), walk.tokens.end(), output.begin());
  if (!goes_on) {
    walk.at = matcher.start();
    walk.tokens.clear();
  }
  while (walk.tokens.size() < output.size()) {
    const TokenId token = output[walk.tokens.size()];
    RETURN_IF_ERROR(matcher.advance(walk.at, token));
    walk.tokens.push_back(token);
  }
  return &walk;
}

StatusOr<TokenConstraints::Next> TokenConstraints::next(const Request& request, std::span<const TokenId> output, bool ban_stop_ids) {
  CHECK(request.sampling.grammar);
  last_ = nullptr;
  ASSIGN_OR_RETURN(Walk* walk, walk_to(request, output));
  ASSIGN_OR_RETURN(const GrammarMatcher::Allowed allowed, (*walk->compiled)->matcher->allowed(walk->at));
  last_ = walk;
  last_stop_ids_ = request.stop_ids;
  Next out;
  out.free = allowed.mask == nullptr;
  if (out.free) return out;
  words_ = allowed.mask->words;
  for (const TokenId id : request.stop_ids) {
    const auto i = static_cast<size_t>(id);
    if (id < 0 || i / 64 >= words_.size()) continue;
    const uint64_t bit = uint64_t{1} << (i % 64);
    const bool named = vocabulary_->is_control(id) && allowed.mask->holds(id);  // by a terminal of the grammar
    if ((allowed.may_end || named) && !ban_stop_ids) {
      words_[i / 64] |= bit;
    } else {
      words_[i / 64] &= ~bit;
    }
  }
  const bool nothing = std::all_of(words_.begin(), words_.end(), [](uint64_t word) { return word == 0; });
  out.over = allowed.complete || (nothing && allowed.may_end);
  if (nothing && !out.over) {
    return absl::FailedPreconditionError("no token of the model's vocabulary can continue the answer within its grammar");
  }
  out.allowed = words_;
  return out;
}

bool TokenConstraints::took(TokenId token) {
  CHECK(last_ != nullptr);
  Walk& walk = *last_;
  last_ = nullptr;
  if (std::find(last_stop_ids_.begin(), last_stop_ids_.end(), token) != last_stop_ids_.end()) return false;  // the engine ends it
  GrammarMatcher& matcher = *(*walk.compiled)->matcher;
  if (!matcher.advance(walk.at, token).ok()) {
    walk.compiled.reset();  // tried again, and reported, by the next next()
    return false;
  }
  walk.tokens.push_back(token);
  return matcher.complete(walk.at);
}

}  // namespace shoal
