#include "engine/engine.h"

#include <algorithm>

#include "base/check.h"

namespace shoal {
namespace {

Status tokens_exist(const Request& request, const EngineConfig& config) {
  const auto outside = [&](TokenId t) { return t < 0 || static_cast<uint32_t>(t) >= config.vocab_size; };
  for (const auto* tokens : {&request.prompt, &request.output}) {
    const auto bad = std::find_if(tokens->begin(), tokens->end(), outside);
    if (bad != tokens->end()) {
      return invalid_argument("token id ", *bad, " is outside the vocabulary of ", config.vocab_size);
    }
  }
  return OkStatus();
}

Status fits(const Request& request, const EngineConfig& config) {
  if (request.prompt.empty()) return invalid_argument("the prompt is empty; send at least one token");
  if (request.prompt.size() + 1 > config.max_model_len) {
    return invalid_argument("This model's maximum context length is ", config.max_model_len,
                            " tokens. However, your prompt has ", request.prompt.size(), " tokens and one must be left to generate.");
  }
  const bool pooled = request.max_tokens == 0 && request.output.empty();
  if (!pooled && request.output.size() >= request.max_tokens) {
    return invalid_argument("max_tokens is ", request.max_tokens, " and ", request.output.size(), " tokens are there already");
  }
  if (request.prompt.size() + request.output.size() + 1 > config.max_model_len) {
    return invalid_argument("prompt and output fill the context of ", config.max_model_len, " tokens");
  }
  return tokens_exist(request, config);
}

std::optional<FinishReason> finished(const Sequence& s, uint32_t max_model_len) {
  const Request& r = *s.request;
  const bool may_stop = s.output_length() > r.min_tokens;  // the first min_tokens were drawn with stop ids banned
  if (may_stop && std::find(r.stop_ids.begin(), r.stop_ids.end(), s.tokens.back()) != r.stop_ids.end()) {
    return FinishReason::kStop;
  }
  if (s.output_length() >= r.max_tokens || s.known() >= max_model_len) return FinishReason::kLength;
  return std::nullopt;
}

}  // namespace

Engine::Engine(BlockPool& blocks, const EngineConfig& config, BlockPool* host_blocks)
    : config_(config),
      device_(blocks, config.prefix_cache && config.kv_salt_above > 0, config.kv_salt_above, config.state_blocks, config.states_kept_max),
      line_(config.waiting_max, config.late_wait, config.late_every),
      parking_(device_, host_blocks) {
  CHECK_GT(config_.max_model_len, 0u);
  CHECK_GT(config_.limits.tokens_per_step, 0u);
  CHECK_GT(config_.limits.sequences_max, 0u);
  CHECK_GT(config_.limits.logit_rows_max, 0u);
}

Engine::~Engine() {
  for (Sequence* s : running_) device_.release(*s);
}

Status Engine::submit(Request request, const std::optional<HostKv>& kv) {
  RETURN_IF_ERROR(fits(request, config_));
  if (has(request.id)) return invalid_argument("request id ", request.id.text(), " is in use");
  RETURN_IF_ERROR(line_.may_join(request.payer));
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
    sequence->admitted_before = true;
    parking_.take(*sequence, *kv);
  } else {
    line_.add(*sequence);
  }
  const RequestId id = sequence->request->id;
  sequences_[id] = std::move(sequence);
  return OkStatus();
}

bool Engine::cancel(RequestId id) {
  const auto found = sequences_.find(id);
  if (found == sequences_.end() || found->second->next == Sequence::Next::kEnd) return false;
  Sequence& s = *found->second;
  if (s.stage == Stage::kStepping || s.moving()) {
    s.next = Sequence::Next::kEnd;  // the step still writes into its blocks, or a copy
  } else {
    if (s.stage == Stage::kRunning) device_.publish_end(s);  // a reader who stopped an answer may go on from there
    erase(s);
  }
  return true;
}

void Engine::restart(RequestId id) {
  Sequence& s = *sequences_.at(id);
  CHECK(s.stage != Stage::kStepping);
  if (s.moving()) {  // as soon as the copy is done
    if (s.next == Sequence::Next::kGoOn) s.next = Sequence::Next::kRestart;
    return;
  }
  parking_.forget(s);
  if (!s.scores_sent) s.scored.clear();
  wait_again(s);
}

HostKv Engine::hand_over(RequestId id) {
  Sequence& s = *sequences_.at(id);
  CHECK(s.stage == Stage::kWaiting || s.stage == Stage::kParked);
  HostKv kv{s.computed, std::exchange(s.host_blocks, {}), std::exchange(s.remote, false)};
  erase(s);
  return kv;
}

bool Engine::kv_is_remote(RequestId id) const {
  const auto found = sequences_.find(id);
  return found != sequences_.end() && found->second->remote;
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
    plan = make_plan(now, tokens_max, line_.passing_over().in_step(next_step_));
    if (plan.slices.empty() && plan.preempt.empty() && line_.passing_over().count(running_.size()) > 0) plan = make_plan(now, tokens_max, false);
    for (const RequestId id : plan.preempt) wait_again(*sequences_.at(id));
    counters_.preemptions += plan.preempt.size();
  } while (plan.slices.empty() && !plan.preempt.empty());
  for (const RequestId id : plan.admit) admit(*sequences_.at(id), now);
  for (const RequestId id : plan.admit) device_.grow_states(*sequences_.at(id));  // when all hold the prefixes that the plan counts on
  if (plan.slices.empty()) return std::nullopt;

  StepInput input;
  input.step = in_flight_step_ = next_step_++;
  for (const Slice& slice : plan.slices) input.slices.push_back(make_slice(*sequences_.at(slice.request), slice));
  for (StepSlice& slice : input.slices) {  // states are kept in the memory that is left
    Sequence& s = *sequences_.at(slice.request);
    if (!device_.plan_kept_state(s, slice.begin, slice.begin + static_cast<uint32_t>(slice.tokens.size()))) continue;
    slice.state_kept = s.state.kept;
    slice.kept_tokens = s.state.kept_at - slice.begin;
  }
  in_flight_.clear();
  for (const StepSlice& slice : input.slices) {
    in_flight_.push_back({slice.request, slice.begin + static_cast<uint32_t>(slice.tokens.size()), slice.sample,
                          slice.score_end - slice.score_begin});
  }
  counters_.count_step(input.rows());
  return input;
}

void EngineCounters::count_step(uint32_t tokens) {
  ++steps;
  step_tokens += tokens;
  const auto bucket = std::lower_bound(kStepTokenBuckets.begin(), kStepTokenBuckets.end(), tokens);
  ++steps_by_tokens[static_cast<size_t>(bucket - kStepTokenBuckets.begin())];
}

std::vector<TokenDelta> Engine::finish_step(const StepResult& result) {
  CHECK(step_in_flight());
  CHECK_EQ(result.step, in_flight_step_);
  const bool deferred = !result.deferred.ok();
  CHECK_EQ(result.slices.size(), deferred ? 0 : in_flight_.size());
  in_flight_step_ = 0;
  counters_.steps_deferred += deferred ? 1 : 0;
  counters_.experts.add(result.experts);
  std::vector<TokenDelta> deltas;
  for (size_t i = 0; i < in_flight_.size(); ++i) {
    Sequence& s = *sequences_.at(in_flight_[i].request);
    s.stage = Stage::kRunning;
    if (deferred) device_.forget_kept_state(s);
    if (s.next == Sequence::Next::kEnd) {
      erase(s);
    } else if (!deferred) {
      CHECK_EQ(result.slices[i].request, in_flight_[i].request);
      commit(s, in_flight_[i], result.slices[i], deltas);
    }
  }
  return deltas;
}

BatchPlan Engine::make_plan(TimePoint now, uint32_t tokens_max, bool pass_over) {
  BatchLimits limits = config_.limits;
  limits.tokens_per_step = std::min(limits.tokens_per_step, tokens_max);
  std::vector<SequenceView> running;
  running.reserve(running_.size());
  // What a preemption would free is worth counting only if this step could run out of blocks at all.
  const uint32_t available = device_.available();
  const uint64_t growth_max = running_.size() + blocks_for(limits.tokens_per_step) + running_.size();
  for (const Sequence* s : running_) {
    SequenceView view{s->request->id, s->known(), s->computed, static_cast<uint32_t>(s->blocks.size())};
    if (available < growth_max) view.blocks_freed = device_.freed_by(*s);
    view.scores_prompt = s->scores_prompt();
    running.push_back(view);
  }
  if (pass_over) line_.passing_over().mark(running_, running, line_.prospects(), now);
  std::vector<SequenceView> waiting;
  if (limits.admit && !parking_.any_parked()) {
    for (const Sequence* s : line_.next(next_step_, now, WaitingLine::kSeenMax)) {
      const PrefixIndex::Probe prefix = device_.find_prefix(*s);
      waiting.push_back({.request = s->request->id, .known = s->known(), .computed = prefix.blocks * kTokensPerBlock + prefix.tail, .blocks_held = prefix.blocks,
                         .prefix_evictable = prefix.evictable, .state_blocks = device_.blocks_for_states(), .scores_prompt = s->scores_prompt()});
    }
  }
  const EngineView view{running, waiting, available, kTokensPerBlock};
  BatchPlan plan = plan_batch(view, limits);
  check_plan(plan, view, limits);
  return plan;
}

void Engine::set_admitting(bool admit, uint32_t admissions_max) {
  config_.limits.admit = admit;
  config_.limits.admissions_max = admissions_max;
}

void Engine::admit(Sequence& s, TimePoint now) {
  line_.remove(s);
  line_.admitted(s);
  running_.push_back(&s);
  s.stage = Stage::kRunning;
  const bool looked_up = device_.take_prefix(s);
  if (s.admitted_before) return;
  s.admitted_before = true;
  s.queued = std::max(Duration(0), now - s.request->arrival);
  s.cached_prompt_tokens = std::min(s.computed, s.prompt_length());
  counters_.prompt_tokens += s.prompt_length();
  if (looked_up) counters_.prefix_queries += s.known();
  counters_.prefix_hits += s.computed;
}

void Engine::wait_again(Sequence& s) {
  CHECK(s.stage != Stage::kStepping && !s.moving());
  device_.release(s);
  std::erase(running_, &s);
  s.computed = 0;
  s.stage = Stage::kWaiting;
  s.next = Sequence::Next::kGoOn;
  line_.remove(s);  // that has not begun is where it was
  line_.add(s);
}

// ---- memory ------------------------------------------------------------------------------------------------------------------

bool Engine::preempt_youngest() {
  CHECK(!step_in_flight());
  if (running_.empty()) return false;
  wait_again(*running_.back());
  ++counters_.preemptions;
  return true;
}

std::optional<KvMove> Engine::park(std::optional<RequestId> id) {
  CHECK(!step_in_flight());
  if (!id && running_.empty()) return std::nullopt;
  Sequence& s = id ? *sequences_.at(*id) : *running_.back();
  std::optional<KvMove> move = parking_.park(s);
  if (!move) return std::nullopt;
  std::erase(running_, &s);
  ++counters_.parkings;
  return move;
}

std::optional<KvMove> Engine::unpark_oldest() {
  if (running_.size() + parking_.moves() >= config_.limits.sequences_max) return std::nullopt;
  return parking_.unpark_oldest();
}

RequestId Engine::finish_move(uint64_t move, bool ok) {
  Sequence& s = parking_.finish(move, ok);
  const RequestId id = s.request->id;
  if (s.stage == Stage::kRunning) {
    const auto younger = std::find_if(running_.begin(), running_.end(), [&](const Sequence* r) { return r->order > s.order; });
    running_.insert(younger, &s);
  }
  if (s.next == Sequence::Next::kEnd) {
    erase(s);
  } else if (s.next == Sequence::Next::kRestart || !ok) {
    restart(id);
  }
  return id;
}

// ---- a step, slice by slice ----------------------------------------------------------------------------------------------------

StepSlice Engine::make_slice(Sequence& s, const Slice& slice) {
  CHECK_EQ(slice.begin, s.computed);
  device_.grow(s, slice.end);
  s.stage = Stage::kStepping;
  StepSlice out;
  out.request = s.request->id;
  out.begin = slice.begin;
  out.tokens.assign(s.tokens.begin() + slice.begin, s.tokens.begin() + slice.end);
  out.blocks.assign(s.blocks.begin(), s.blocks.begin() + blocks_for(slice.end));
  if (s.state.tail) out.tail_from = {*s.state.tail};
  out.state_before = s.state.now;
  out.state_after = s.state.next;
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
  device_.advance_state(s);
  device_.publish(s);
  if (!slice.sample) return;
  CHECK(result.sampled.size() == 1 || (result.sampled.empty() && result.complete));
  for (const SampledToken& sampled : result.sampled) {
    s.tokens.push_back(sampled.token);
    s.mirostat_mu = sampled.mirostat_mu;
    ++s.delivered;
    if (s.request->max_tokens > 0) ++counters_.generated_tokens;
  }
  delta.tokens = result.sampled;
  if (!s.scores_sent) delta.prompt = s.scored;
  s.scores_sent = true;
  delta.finish = result.complete ? FinishReason::kStop : finished(s, config_.max_model_len);
  const bool ends = delta.finish.has_value();
  deltas.push_back(std::move(delta));
  if (!ends) return;
  device_.publish_end(s);
  erase(s);
}

void Engine::erase(Sequence& s) {
  CHECK(s.stage != Stage::kStepping && !s.moving());
  device_.release(s);
  parking_.forget(s);
  line_.remove(s);
  std::erase(running_, &s);
  sequences_.erase(s.request->id);
}

void Engine::check() const {
  CHECK_EQ(line_.size() + running_.size() + parking_.parked() + parking_.moves(), sequences_.size());
  parking_.check();
  line_.check();
  for (const Sequence* s : running_) {
    CHECK(s->stage == Stage::kRunning || (s->stage == Stage::kStepping && step_in_flight()));
    CHECK(s->host_blocks.empty());
    CHECK_LE(s->computed, s->known());
    CHECK_LE(blocks_for(s->computed), s->blocks.size());
    CHECK_LE(s->published * kTokensPerBlock, s->computed);
    CHECK_LE(s->known(), config_.max_model_len);
    device_.check(*s);
  }
  device_.check();
}

}  // namespace shoal
