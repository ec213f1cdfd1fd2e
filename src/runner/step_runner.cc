#include "runner/step_runner.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "base/check.h"
#include "policy/overlap.h"

namespace shoal {
namespace {

// Nothing is generated: what the model makes of the prompt is wanted (Request::max_tokens).
bool is_pooled(const Request& request) { return request.max_tokens == 0; }

// The vector of a prompt, or its logits of the tokens that the request names, as the alternatives of one token.
void pick_pooled(const Request& request, std::span<const float> values, SliceResult& out) {
  SampledToken result;
  const auto add = [&](TokenId at) { result.top.push_back({at, values[static_cast<size_t>(at)]}); };
  if (request.sampling.rules) {
    for (const TokenId token : request.sampling.rules->allowed) add(token);
  } else {
    result.top.reserve(values.size());
    for (size_t i = 0; i < values.size(); ++i) add(static_cast<TokenId>(i));
  }
  for (const TokenLogprob& entry : result.top) out.finite &= std::isfinite(entry.logprob);
  if (out.finite) out.sampled.push_back(std::move(result));
}

uint32_t block_count(const StepSlice& slice) { return static_cast<uint32_t>(slice.blocks.size()); }

// The next blocks of a list, as many as `ids`.
std::span<const DeviceAddress> next_blocks(std::span<const DeviceAddress> all, const std::vector<BlockId>& ids, size_t& at) {
  at += ids.size();
  return all.subspan(at - ids.size(), ids.size());
}

LogitsQuery query_of(const StepSlice& slice, uint32_t row) {
  const Request& request = *slice.params;
  if (is_pooled(request)) return {row, request.sampling.rules ? LogitsWanted::kAll : LogitsWanted::kPooled};
  const bool edited = request.sampling.grammar || (slice.ban_stop_ids && !request.stop_ids.empty());
  return edited ? LogitsQuery{row} : Sampler::query(request.sampling, row);
}

// The rows of a slice whose logits are wanted, in ascending order: position p - 1 judges prompt token p, the last row
// gives the next token.
void append_queries(const StepSlice& slice, uint32_t row_begin, std::vector<LogitsQuery>& queries) {
  for (uint32_t token = slice.score_begin; token < slice.score_end; ++token) queries.push_back({row_begin + token - 1 - slice.begin});
  if (slice.sample) queries.push_back(query_of(slice, row_begin + static_cast<uint32_t>(slice.tokens.size()) - 1));
}

// What a slice takes beside others: its rows, and the more the longer the context that they look at.
double work_of(const StepSlice& slice) {
  constexpr double kContextPerRow = 2048;  // tokens that cost about as much as a row does by itself
  const auto rows = static_cast<double>(slice.tokens.size());
  return rows * (1 + (slice.begin + rows / 2) / kContextPerRow);
}

}  // namespace

void StepRunner::sample(const StepSlice& slice, const RowLogits& logits, TokenConstraints* constraints, SliceResult& out) {
  const Request& request = *slice.params;
  SampleContext context{request.sampling, slice.output_index, request.prompt, slice.output, {}, {}, slice.mirostat_mu};
  if (slice.ban_stop_ids) context.banned = request.stop_ids;
  const bool constrained = static_cast<bool>(request.sampling.grammar);
  if (constrained) {
    if (constraints == nullptr) {
      out.error = unimplemented("this node cannot follow grammars");
      return;
    }
    const StatusOr<TokenConstraints::Next> next = constraints->next(request, slice.output, slice.ban_stop_ids);
    if (!next.ok()) {
      out.error = invalid_argument(next.status().message());  // the request's own fault, whatever it was
      return;
    }
    out.complete = next->over;
    if (next->over) return;
    context.allowed = next->allowed;
  }
  SampledToken sampled;
  const SampleOutcome outcome = sampler_.sample(logits, context, sampled);
  if (outcome == SampleOutcome::kToken) {
    if (constrained) out.complete = constraints->took(sampled.token);
    out.sampled.push_back(std::move(sampled));
  } else if (outcome == SampleOutcome::kNothingLeft && constrained) {
    out.error = invalid_argument("the model gives every token that the grammar allows here the probability 0");
  } else if (outcome == SampleOutcome::kNothingLeft && request.sampling.rules) {
    out.error = invalid_argument("no token is left: 'allowed_token_ids', 'bad_words' and 'logit_bias' forbid all that the model could say here");
  } else {
    out.finite = false;
  }
}

SliceResult StepRunner::pick(const StepSlice& slice, Pass& pass, size_t& query, TokenConstraints* constraints) {
  SliceResult out;
  out.request = slice.request;
  const Request& request = *slice.params;
  for (uint32_t token = slice.score_begin; token < slice.score_end; ++token) {
    SampledToken scored;
    out.finite &= sampler_.score(pass.logits(query++).all, request.prompt[token], *request.prompt_logprobs, scored);
    out.scored.push_back(std::move(scored));
  }
  if (slice.sample && is_pooled(request)) {
    pick_pooled(request, pass.logits(query++).all, out);
  } else if (slice.sample) {
    sample(slice, pass.logits(query++), constraints, out);
  }
  return out;
}

// Lanes of whole sequences with about as much work each.
void StepRunner::lay_out(const ResolvedStep& step, uint32_t lanes) {
  const std::vector<StepSlice>& slices = step.input.slices;
  lanes_.resize(std::max(lanes, 1u));
  for (Lane& lane : lanes_) {
    lane.of_step.clear();
    lane.tokens.clear();
    lane.slices.clear();
    lane.queries.clear();
  }
  std::vector<double> work;
  for (const StepSlice& slice : slices) work.push_back(work_of(slice));
  const std::vector<uint32_t> lane_of = even_lanes(work, static_cast<uint32_t>(lanes_.size()));
  size_t first_block = 0;
  for (size_t i = 0; i < slices.size(); ++i) {
    const StepSlice& slice = slices[i];
    Lane& lane = lanes_[lane_of[i]];
    const auto count = static_cast<uint32_t>(slice.tokens.size());
    append_queries(slice, static_cast<uint32_t>(lane.tokens.size()), lane.queries);
    lane.of_step.push_back(i);
    lane.tokens.insert(lane.tokens.end(), slice.tokens.begin(), slice.tokens.end());
    SequenceSlice part{count, slice.begin, slice.prompt_length, next_blocks(step.blocks, slice.blocks, first_block)};
    part.tail_from = next_blocks(step.blocks, slice.tail_from, first_block);
    part.state.before = next_blocks(step.blocks, slice.state_before, first_block);
    part.state.after = next_blocks(step.blocks, slice.state_after, first_block);
    part.state.kept = next_blocks(step.blocks, slice.state_kept, first_block);
    part.state.kept_rows = slice.kept_tokens;
    lane.slices.push_back(part);
  }
  for (Lane& lane : lanes_) lane.input = {lane.tokens, lane.slices, lane.queries};
  CHECK_EQ(first_block, step.blocks.size());
}

Status StepRunner::begin_passes() {
  DeviceSpan left = workspace_;
  for (uint32_t i = 0; i < lanes_.size(); ++i) {
    Lane& lane = lanes_[i];
    const uint64_t bytes = job_.model->workspace_bytes(static_cast<uint32_t>(lane.tokens.size()), static_cast<uint32_t>(lane.queries.size()));
    ASSIGN_OR_RETURN(lane.pass, job_.model->begin(lane.input, left.part(0, bytes)));
    left = left.part(bytes, left.bytes - bytes);
    ready_.push_back(i);
  }
  return OkStatus();
}

bool StepRunner::ready() {
  if (ready_.empty() && asked_ > 0 && computed_.ok()) {
    const StatusOr<std::optional<uint32_t>> answered = job_.partner->answered();
    if (!answered.ok()) {
      computed_ = answered.status();
    } else if (*answered) {
      --asked_;
      ready_.push_back(**answered);
    }
  }
  return !ready_.empty() || asked_ == 0 || !computed_.ok();
}

StatusOr<StepRunner::Progress> StepRunner::advance(const Pass::Pause& pause) {
  while (ready()) {
    RETURN_IF_ERROR(computed_);
    if (ready_.empty()) return Progress::kDone;
    const uint32_t i = ready_.front();
    Pass& pass = *lanes_[i].pass;
    ASSIGN_OR_RETURN(const std::optional<Exchange> exchange, pass.advance(pause));
    if (!exchange && !pass.done()) return Progress::kPaused;
    ready_.pop_front();
    if (exchange) {
      if (job_.partner == nullptr) return unavailable("nobody computes the part of layer ", exchange->layer, " that is not here");
      job_.partner->ask(i, *exchange);
      pass.meanwhile();
      ++asked_;
    }
    if (pause && pause()) return Progress::kPaused;
  }
  return Progress::kWaits;
}

// An engine cuts prompts as its budget asks; a model that needs whole sequences computes each when its last piece has come, as many
// at once as the workspace takes.
void StepRunner::run_whole() {
  const ResolvedStep& step = *job_.step;
  lanes_.resize(1);
  Lane& lane = lanes_[0];
  size_t block = 0;
  std::vector<size_t> waiting;  // slices laid out since the last pass
  const auto compute = [&]() -> Status {
    RETURN_IF_ERROR(begin_passes());
    return advance({}).status();
  };
  const auto flush = [&] {
    lane.input = {lane.tokens, lane.slices, lane.queries};
    const Status computed = waiting.empty() ? OkStatus() : compute();
    ready_.clear();
    for (size_t i = 0; i < waiting.size(); ++i) {
      SliceResult& out = result_.slices[waiting[i]];
      out.error = computed;
      if (computed.ok()) pick_pooled(*step.input.slices[waiting[i]].params, lane.pass->logits(i).all, out);
    }
    lane.pass.reset();
    lane.tokens.clear(), lane.slices.clear(), lane.queries.clear(), waiting.clear();
  };
  flush();
  for (const StepSlice& slice : step.input.slices) {
    const std::span<const DeviceAddress> blocks(step.blocks.data() + block, block_count(slice));
    block += blocks.size();
    SliceResult& out = result_.slices.emplace_back();
    out.request = slice.request;
    if (!slice.sample) continue;
    const Request& request = *slice.params;
    if (!is_pooled(request) || request.sampling.rules) {
      out.error = invalid_argument("this model makes vectors and generates nothing");
      continue;
    }
    const auto rows = static_cast<uint32_t>(request.prompt.size());
    if (job_.model->workspace_bytes(static_cast<uint32_t>(lane.tokens.size()) + rows, static_cast<uint32_t>(lane.queries.size()) + 1) > workspace_.bytes) flush();
    lane.tokens.insert(lane.tokens.end(), request.prompt.begin(), request.prompt.end());
    lane.slices.push_back({rows, 0, slice.prompt_length, blocks});
    lane.queries.push_back({static_cast<uint32_t>(lane.tokens.size()) - 1, LogitsWanted::kPooled});
    waiting.push_back(result_.slices.size() - 1);
  }
  flush();
}

ExpertCounts StepRunner::counts() const {
  ExpertCounts counts = job_.partner == nullptr ? ExpertCounts() : job_.partner->counts();
  counts.add(job_.model->expert_counts());
  return counts;
}

void StepRunner::begin(const RunnerJob& job) {
  job_ = job;
  result_ = {job.step->input.step, {}, OkStatus()};
  computed_ = OkStatus();
  ready_.clear();
  asked_ = 0;
  if (job.model->whole_sequences()) return;
  const StepInput& input = job.step->input;
  before_ = counts();
  lay_out(*job.step, job.partner == nullptr ? 1 : job.partner->begin(input.rows(), static_cast<uint32_t>(input.slices.size()), options_.lanes));
  computed_ = begin_passes();
}

StepRunner::Progress StepRunner::go_on(const Pass::Pause& pause) {
  if (job_.model->whole_sequences()) return run_whole(), Progress::kDone;
  const StatusOr<Progress> progress = advance(pause);
  if (progress.ok()) return *progress;
  computed_ = progress.status();
  return Progress::kDone;
}

StepResult StepRunner::end(bool alone) {
  if (job_.model->whole_sequences()) return std::move(result_);
  const std::vector<StepSlice>& slices = job_.step->input.slices;
  if (computed_.ok() && job_.partner != nullptr) job_.partner->end(alone);
  result_.experts = counts().since(before_);
  if (computed_.code() == StatusCode::kUnavailable) {
    result_.deferred = computed_;
  } else if (!computed_.ok()) {
    for (const StepSlice& slice : slices) result_.slices.push_back({.request = slice.request, .error = computed_});
  } else {
    result_.slices.resize(slices.size());
    for (Lane& lane : lanes_) {
      size_t query = 0;
      for (const size_t i : lane.of_step) result_.slices[i] = pick(slices[i], *lane.pass, query, job_.constraints);
    }
  }
  for (Lane& lane : lanes_) lane.pass.reset();
  return std::move(result_);
}

StepResult StepRunner::run(const RunnerJob& job) {
  begin(job);
  while (go_on() != Progress::kDone) {
  }
  return end();
}

// Pieces of buffers are aligned, and each pass has states of its own for attention that is split: what one row takes, at most.
uint64_t StepRunner::workspace_bytes(const ModelPlan& plan, uint32_t rows, uint32_t logit_rows, uint32_t lanes) {
  return plan.workspace_bytes(rows, logit_rows) + (lanes - 1) * plan.workspace_bytes(1, 1);
}

}  // namespace shoal
