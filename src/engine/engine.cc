#include "engine/engine.h"

#include <algorithm>

#include "base/check.h"

namespace shoal {
namespace {

// The policy looks at so many waiting sequences per step: enough to fill any step, independent of the queue's length.
constexpr size_t kWaitingViewMax = 64;

uint32_t blocks_for(uint32_t tokens) { return (tokens + kTokensPerBlock - 1) / kTokensPerBlock; }

}  // namespace

Engine::Engine(BlockPool& blocks, const EngineConfig& config, BlockPool* host_blocks)
    : blocks_(blocks), host_blocks_(host_blocks), config_(config), index_(blocks) {
  CHECK(host_blocks == nullptr || host_blocks->block_bytes() == blocks.block_bytes());
  CHECK_GT(config_.max_model_len, 0u);
  CHECK_GT(config_.limits.tokens_per_step, 0u);
  CHECK_GT(config_.limits.sequences_max, 0u);
  CHECK_GT(config_.limits.logit_rows_max, 0u);
}

Engine::~Engine() {
  for (auto& [id, move] : moves_) {
    for (const BlockId block : move.device) index_.release(block);
  }
  for (auto& [id, sequence] : sequences_) {
    release_blocks(*sequence);
    release_parked(*sequence);
  }
  index_.evict_all();
}

Status Engine::validate(const Request& request) const {
  if (request.prompt.empty()) return invalid_argument("the prompt is empty; send at least one token");
  if (request.prompt.size() + 1 > config_.max_model_len) {
    return invalid_argument("This model's maximum context length is ", config_.max_model_len,
                            " tokens. However, your prompt has ", request.prompt.size(), " tokens and one must be left to generate.");
  }
  if (request.max_tokens == 0 || request.output.size() >= request.max_tokens) {
    return invalid_argument("max_tokens is ", request.max_tokens, " and ", request.output.size(), " tokens are there already");
  }
  if (request.prompt.size() + request.output.size() + 1 > config_.max_model_len) {
    return invalid_argument("prompt and output fill the context of ", config_.max_model_len, " tokens");
  }
  const auto outside = [&](TokenId t) { return t < 0 || static_cast<uint32_t>(t) >= config_.vocab_size; };
  for (const auto* tokens : {&request.prompt, &request.output}) {
    const auto bad = std::find_if(tokens->begin(), tokens->end(), outside);
    if (bad != tokens->end()) {
      return invalid_argument("token id ", *bad, " is outside the vocabulary of ", config_.vocab_size);
    }
  }
  if (sequences_.contains(request.id)) return invalid_argument("request id ", request.id.text(), " is in use");
  return OkStatus();
}

Status Engine::submit(Request request, const std::optional<HostKv>& kv) {
  RETURN_IF_ERROR(validate(request));
  if (waiting_.size() >= config_.waiting_max) {
    return resource_exhausted("the queue of this model is full (", config_.waiting_max, " requests)");
  }
  auto sequence = std::make_unique<Sequence>();
  sequence->tokens = request.prompt;
  sequence->tokens.insert(sequence->tokens.end(), request.output.begin(), request.output.end());
  sequence->mirostat_mu = request.mirostat_mu;
  sequence->delivered = static_cast<uint32_t>(request.output.size());
  sequence->order = next_order_++;
  sequence->request = std::make_shared<const Request>(std::move(request));
  sequence->scores_sent = !sequence->request->prompt_logprobs || sequence->delivered > 0;
  if (sequence->scores_sent && sequence->request->prompt_logprobs) sequence->scored.resize(sequence->prompt_length());
  if (kv) {
    CHECK(kv->tokens > 0 && kv->tokens < sequence->known());
    CHECK_EQ(kv->blocks.size(), size_t{blocks_for(kv->tokens)});
    sequence->computed = kv->tokens;
    sequence->parked = kv->blocks;
    sequence->remote = kv->remote;
    sequence->admitted_before = true;
    parked_[sequence->order] = sequence.get();
  } else {
    waiting_[wait_key(*sequence)] = sequence.get();
  }
  const RequestId id = sequence->request->id;
  sequences_[id] = std::move(sequence);
  return OkStatus();
}

bool Engine::cancel(RequestId id) {
  const auto found = sequences_.find(id);
  if (found == sequences_.end() || found->second->cancelled) return false;
  Sequence& s = *found->second;
  if (s.in_flight || s.moving) {
    s.cancelled = true;  // the step still writes into its blocks, or a copy
  } else {
    erase(s);
  }
  return true;
}

Request Engine::request(RequestId id) const {
  const Sequence& s = *sequences_.at(id);
  Request request = *s.request;
  request.output.assign(s.tokens.begin() + s.prompt_length(), s.tokens.end());
  request.mirostat_mu = s.mirostat_mu;
  return request;
}

std::optional<StepInput> Engine::begin_step(TimePoint now, uint32_t tokens_max) {
  CHECK(!step_in_flight());
  BatchPlan plan;
  do {  // a step that only preempts is no step: what came free is planned with at once
    plan = make_plan(tokens_max);
    for (const RequestId id : plan.preempt) preempt(*sequences_.at(id));
  } while (plan.slices.empty() && !plan.preempt.empty());
  for (const RequestId id : plan.admit) admit(*sequences_.at(id), now);
  if (plan.slices.empty()) return std::nullopt;

  StepInput input;
  input.step = in_flight_step_ = next_step_++;
  for (const Slice& slice : plan.slices) input.slices.push_back(make_slice(*sequences_.at(slice.request), slice));
  in_flight_.clear();
  for (const StepSlice& slice : input.slices) {
    in_flight_.push_back({slice.request, slice.begin + static_cast<uint32_t>(slice.tokens.size()), slice.sample,
                          slice.score_end - slice.score_begin});
  }
  count(input);
  return input;
}

void Engine::count(const StepInput& input) {
  const uint32_t tokens = input.rows();
  ++counters_.steps;
  counters_.step_tokens += tokens;
  const auto bucket = std::lower_bound(kStepTokenBuckets.begin(), kStepTokenBuckets.end(), tokens);
  ++counters_.steps_by_tokens[static_cast<size_t>(bucket - kStepTokenBuckets.begin())];
}

std::vector<TokenDelta> Engine::finish_step(const StepResult& result) {
  CHECK(step_in_flight());
  CHECK_EQ(result.step, in_flight_step_);
  CHECK_EQ(result.slices.size(), in_flight_.size());
  in_flight_step_ = 0;
  std::vector<TokenDelta> deltas;
  for (size_t i = 0; i < in_flight_.size(); ++i) {
    CHECK_EQ(result.slices[i].request, in_flight_[i].request);
    Sequence& s = *sequences_.at(in_flight_[i].request);
    s.in_flight = false;
    if (s.cancelled) {
      erase(s);
    } else {
      commit(s, in_flight_[i], result.slices[i], deltas);
    }
  }
  return deltas;
}

BatchPlan Engine::make_plan(uint32_t tokens_max) const {
  BatchLimits limits = config_.limits;
  limits.tokens_per_step = std::min(limits.tokens_per_step, tokens_max);
  std::vector<SequenceView> running, waiting;
  running.reserve(running_.size());
  // What a preemption would free is worth counting only if this step could run out of blocks at all.
  const uint32_t available = index_.evictable() + blocks_.obtainable();
  const uint64_t growth_max = running_.size() + blocks_for(limits.tokens_per_step) + running_.size();
  for (const Sequence* s : running_) running.push_back(view_of_running(*s, available < growth_max));
  for (const auto& [key, s] : waiting_) {
    if (waiting.size() >= kWaitingViewMax || !config_.limits.admit || !parked_.empty()) break;
    waiting.push_back(view_of_waiting(*s));
  }
  const EngineView view{running, waiting, available, kTokensPerBlock};
  BatchPlan plan = plan_batch(view, limits);
  check_plan(plan, view, limits);
  return plan;
}

SequenceView Engine::view_of_running(const Sequence& s, bool count_freed) const {
  SequenceView view{s.request->id, s.known(), s.computed, static_cast<uint32_t>(s.blocks.size())};
  for (size_t i = 0; count_freed && i < s.blocks.size(); ++i) {
    view.blocks_freed += blocks_.count(s.blocks[i]) <= (i < s.published ? 2u : 1u);
  }
  view.scores_prompt = s.scores_prompt();
  return view;
}

PrefixEntry Engine::root_for(const Sequence& s) const {
  const uint64_t length = s.prompt_length() > config_.kv_salt_above ? s.prompt_length() : 0;
  return PrefixIndex::root(weights_ << 32 | length);
}

void Engine::forget_prefixes() {
  ++weights_;
  drop_cached();
}

// At least one token is left to compute, or there would be no logits; scoring needs the logits of every token.
uint32_t Engine::matchable_blocks(const Sequence& s) const {
  return config_.prefix_cache && !s.scores_prompt() ? (s.known() - 1) / kTokensPerBlock : 0;
}

SequenceView Engine::view_of_waiting(const Sequence& s) const {
  SequenceView view{s.request->id, s.known()};
  const PrefixIndex::Probe probe = index_.probe(root_for(s), s.tokens, matchable_blocks(s));
  view.blocks_held = probe.blocks;
  view.computed = probe.blocks * kTokensPerBlock;
  view.prefix_evictable = probe.evictable;
  view.scores_prompt = s.scores_prompt();
  return view;
}

void Engine::admit(Sequence& s, TimePoint now) {
  waiting_.erase(wait_key(s));
  running_.push_back(&s);
  CHECK(s.blocks.empty());
  const uint32_t matchable = matchable_blocks(s);
  PrefixIndex::Match match = index_.acquire(root_for(s), s.tokens, matchable);
  s.blocks = std::move(match.blocks);
  s.published = static_cast<uint32_t>(s.blocks.size());
  s.entry = match.entry;
  s.computed = s.published * kTokensPerBlock;
  if (s.admitted_before) return;
  s.admitted_before = true;
  s.queued = std::max(Duration(0), now - s.request->arrival);
  s.cached_prompt_tokens = std::min(s.computed, s.prompt_length());
  counters_.prompt_tokens += s.prompt_length();
  if (matchable > 0) counters_.prefix_queries += s.known();
  counters_.prefix_hits += s.computed;
}

void Engine::preempt(Sequence& s) {
  CHECK(!s.in_flight);
  release_blocks(s);
  running_.erase(std::find(running_.begin(), running_.end(), &s));
  waiting_[wait_key(s)] = &s;
  ++counters_.preemptions;
}

bool Engine::preempt_youngest() {
  CHECK(!step_in_flight());
  if (running_.empty()) return false;
  preempt(*running_.back());
  return true;
}

void Engine::grow(Sequence& s, uint32_t tokens) {
  while (s.blocks.size() < blocks_for(tokens)) {
    std::optional<BlockId> block = blocks_.allocate();
    if (!block) {
      CHECK(index_.evict_one());  // the plan counted evictable blocks
      block = blocks_.allocate();
      CHECK(block.has_value());
    }
    s.blocks.push_back(*block);
  }
}

StepSlice Engine::make_slice(Sequence& s, const Slice& slice) {
  CHECK_EQ(slice.begin, s.computed);
  grow(s, slice.end);
  s.in_flight = true;
  StepSlice out;
  out.request = s.request->id;
  out.begin = slice.begin;
  out.tokens.assign(s.tokens.begin() + slice.begin, s.tokens.begin() + slice.end);
  out.blocks.assign(s.blocks.begin(), s.blocks.begin() + blocks_for(slice.end));
  out.prompt_length = s.prompt_length();
  out.sample = slice.end == s.known();
  out.output_index = s.output_length();
  out.ban_stop_ids = s.output_length() < s.request->min_tokens;
  out.params = s.request;
  out.mirostat_mu = s.mirostat_mu;
  if (out.sample && (s.request->sampling.uses_history() || s.request->sampling.grammar)) {
    out.output.assign(s.tokens.begin() + s.prompt_length(), s.tokens.end());
  }
  if (s.scores_prompt()) {
    out.score_begin = static_cast<uint32_t>(s.scored.size()) + 1;
    out.score_end = std::max(out.score_begin, std::min(slice.end + 1, s.prompt_length()));
    CHECK_GE(out.score_begin, slice.begin + 1);
  }
  return out;
}

void Engine::commit(Sequence& s, const InFlight& slice, const SliceResult& result, std::vector<TokenDelta>& deltas) {
  TokenDelta delta;
  delta.request = s.request->id;
  delta.first_index = s.delivered;
  delta.cached_prompt_tokens = s.cached_prompt_tokens;
  delta.queued = s.queued;
  if (!result.finite || !result.error.ok()) {
    delta.finish = FinishReason::kError;
    delta.error = !result.error.ok() ? result.error
                                     : absl::InternalError("the model produced logits that are not numbers; its weights are "
                                                           "damaged or its type overflows");
    deltas.push_back(std::move(delta));
    erase(s);
    return;
  }
  CHECK_EQ(result.scored.size(), size_t{slice.scores});
  s.scored.insert(s.scored.end(), result.scored.begin(), result.scored.end());
  s.computed = slice.end;
  publish_full_blocks(s);
  if (!slice.sample) return;
  CHECK(result.sampled.size() == 1 || (result.sampled.empty() && result.complete));
  for (const SampledToken& sampled : result.sampled) {
    s.tokens.push_back(sampled.token);
    s.mirostat_mu = sampled.mirostat_mu;
    ++s.delivered;
    ++counters_.generated_tokens;
  }
  delta.tokens = result.sampled;
  if (!s.scores_sent) delta.prompt = s.scored;
  s.scores_sent = true;
  delta.finish = result.complete ? FinishReason::kStop : finished(s);
  const bool ends = delta.finish.has_value();
  deltas.push_back(std::move(delta));
  if (ends) erase(s);
}

std::optional<FinishReason> Engine::finished(const Sequence& s) const {
  const Request& r = *s.request;
  const bool may_stop = s.output_length() > r.min_tokens;  // the first min_tokens were drawn with stop ids banned
  if (may_stop && std::find(r.stop_ids.begin(), r.stop_ids.end(), s.tokens.back()) != r.stop_ids.end()) {
    return FinishReason::kStop;
  }
  if (s.output_length() >= r.max_tokens || s.known() >= config_.max_model_len) return FinishReason::kLength;
  return std::nullopt;
}

void Engine::publish_full_blocks(Sequence& s) {
  if (!config_.prefix_cache) return;
  if (s.published == 0) s.entry = root_for(s);
  for (; (s.published + 1) * kTokensPerBlock <= s.computed; ++s.published) {
    const std::span<const TokenId> tokens(s.tokens.data() + s.published * kTokensPerBlock, kTokensPerBlock);
    s.entry = index_.publish(s.entry, tokens, s.blocks[s.published]);
  }
}

void Engine::release_blocks(Sequence& s) {
  while (!s.blocks.empty()) {  // the tail first: the beginning of a prefix is worth most
    index_.release(s.blocks.back());
    s.blocks.pop_back();
  }
  s.computed = 0;
  s.published = 0;
  s.entry = 0;
}

void Engine::erase(Sequence& s) {
  CHECK(!s.in_flight && !s.moving);
  release_blocks(s);
  release_parked(s);
  waiting_.erase(wait_key(s));
  parked_.erase(s.order);
  if (const auto it = std::find(running_.begin(), running_.end(), &s); it != running_.end()) running_.erase(it);
  sequences_.erase(s.request->id);
}

Engine::Demand Engine::demand(const SloTarget& target, TimePoint now) const {
  Demand demand;
  const auto consider = [&](const Sequence& s) {
    const SloTarget own = tightened(target, s.request->ttft_max, s.request->tbt_max);
    const Duration until = slack(own, s.request->arrival, s.delivered + 1, now);
    if (until < demand.slack) demand.slack = until, demand.computed = s.computed, demand.known = s.known();
  };
  for (const Sequence* s : running_) {
    consider(*s);
    ++demand.sequences;
    if (s->known() == s->computed + 1) {
      ++demand.decoding;
      demand.tbt = std::min(demand.tbt, tightened(target, s->request->ttft_max, s->request->tbt_max).tbt);
    }
    demand.context_tokens += s->known();
    demand.blocks += s->blocks.size();
  }
  size_t looked_at = 0;
  for (const auto& [order, s] : parked_) consider(*s);
  for (const auto& [id, move] : moves_) consider(*move.sequence);
  for (const auto& [key, s] : waiting_) {
    if (++looked_at > kWaitingViewMax) break;
    consider(*s);
  }
  return demand;
}

uint32_t Engine::blocks_wanted() const {
  return static_cast<uint32_t>(std::count_if(running_.begin(), running_.end(),
                                             [](const Sequence* s) { return blocks_for(s->computed + 1) > s->blocks.size(); }));
}

uint32_t Engine::blocks_active() const {
  if (running_.empty() && moves_.empty()) return 0;
  std::vector<BlockId> held;
  for (const Sequence* s : running_) held.insert(held.end(), s->blocks.begin(), s->blocks.end());
  for (const auto& [id, move] : moves_) held.insert(held.end(), move.device.begin(), move.device.end());
  std::sort(held.begin(), held.end());
  return static_cast<uint32_t>(std::unique(held.begin(), held.end()) - held.begin());
}

void Engine::check() const {
  CHECK_EQ(waiting_.size() + running_.size() + parked_.size() + moves_.size(), sequences_.size());
  check_parked();
  for (const auto& [key, s] : waiting_) {
    CHECK(s->blocks.empty() && s->parked.empty() && !s->in_flight && !s->moving);
    CHECK(key == wait_key(*s));
  }
  for (const Sequence* s : running_) {
    CHECK_LE(s->computed, s->known());
    CHECK_LE(blocks_for(s->computed), s->blocks.size());
    CHECK_LE(s->published * kTokensPerBlock, s->computed);
    CHECK_LE(s->known(), config_.max_model_len);
    CHECK(!s->in_flight || step_in_flight());
    for (const BlockId block : s->blocks) CHECK_GE(blocks_.count(block), 1u);
  }
  index_.check();
}

}  // namespace shoal
