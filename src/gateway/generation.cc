#include "gateway/generation.h"

#include <algorithm>

#include "base/clock.h"

namespace shoal {
namespace {

constexpr size_t kPollMax = 64;  // deliveries of one poll(): what they become as text stays small

size_t size_of(const Tokens& tokens) {
  size_t bytes = sizeof(Tokens) + tokens.error.size();
  for (const auto* list : {&tokens.tokens, &tokens.prompt}) {
    for (const SampledToken& token : *list) bytes += sizeof(SampledToken) + token.top.size() * sizeof(TokenLogprob);
  }
  return bytes;
}

}  // namespace

Generation::Generation(PreparedRequest request, RouterLoop& loop, const GenerationOptions& options,
                       std::function<void()> wake)
    : request_(std::move(request)), loop_(loop), options_(options), started_(steady_now()),
      slo_(tightened(request_.model->slo, request_.request.ttft_max, request_.request.tbt_max)), wake_(std::move(wake)) {
  const uint32_t count = static_cast<uint32_t>(request_.prompts.size()) * request_.n;
  choices_.reserve(count);
  for (uint32_t i = 0; i < count; ++i) {
    choices_.push_back({loop_.next_id(), ChoiceStream(request_, request_.prompts[i / request_.n], i), TokenScore(slo_, started_)});
    index_.emplace(choices_.back().id, i);
  }
  cached_tokens_.resize(request_.prompts.size());
  unfinished_ = count;
}

Generation::~Generation() { cancel(); }

ApiResult<std::shared_ptr<Generation>> Generation::start(PreparedRequest request, RouterLoop& loop,
                                                         const GenerationOptions& options, std::function<void()> wake) {
  std::shared_ptr<Generation> self(new Generation(std::move(request), loop, options, std::move(wake)));
  const auto submitted = self->submit();
  if (!submitted.ok()) return submitted.error();
  return self;
}

ApiResult<bool> Generation::submit() {
  for (uint32_t i = 0; i < choices_.size(); ++i) {
    Request request = request_.request;
    request.id = choices_[i].id;
    request.prompt = request_.prompts[i / request_.n].ids;
    request.sampling.seed += i % request_.n;
    const Status status = loop_.submit(std::move(request), options_.deadline, shared_from_this());
    if (!status.ok()) {
      for (uint32_t later = i; later < choices_.size(); ++later) choices_[later].ended = true;  // never submitted
      cancel();
      return from_status(status, std::chrono::seconds(1));
    }
  }
  return true;
}

void Generation::cancel() {
  if (cancelled_) return;
  cancelled_ = true;
  {
    std::lock_guard lock(mutex_);
    closed_ = true;
    wake_ = nullptr;  // what it holds of the connection may be gone before the router has let go of this
  }
  for (Choice& choice : choices_) {
    if (!choice.ended) loop_.cancel(choice.id);
    choice.ended = true;
  }
  score_answers();
}

// What a failed answer gave was in vain. Whoever went away is owed no more; but what was late by then is late.
void Generation::score_answers() {
  const TimePoint now = steady_now();
  const bool scored = options_.metrics != nullptr && !(failure_status_ && *failure_status_ < 500);
  for (uint32_t i = 0; i < choices_.size(); ++i) {
    Choice& choice = choices_[i];
    loop_.timeline().add(span_of(i, now));
    if (!scored) continue;
    const bool finished = choice.finish.has_value();
    const bool overdue = !finished && !failure_status_ && deadline(slo_, started_, choice.score.tokens() + 1) < now;
    if (overdue) choice.score.add_token(now);
    if (!finished && !overdue && !failure_status_ && choice.score.tokens() == 0) continue;
    options_.metrics->answer_scored(*request_.model, choice.score, finished || !failure_status_);
  }
}

RequestSpan Generation::span_of(uint32_t index, TimePoint now) const {
  const Choice& choice = choices_[index];
  RequestSpan span{.id = choice.id, .model = request_.model->id, .arrival = started_, .first_token = choice.first_at, .end = now};
  span.prompt_tokens = static_cast<uint32_t>(request_.prompts[index / request_.n].ids.size());
  span.output_tokens = static_cast<uint32_t>(choice.score.tokens());
  span.max_tokens = request_.request.max_tokens;
  span.finish = choice.finish ? std::string(finish_reason_name(*choice.finish)) : failure_status_ ? "error" : "gone";
  if (choice.finish) span.end = choice.last_at;
  span.slo = slo_;
  span.tokens_on_time = choice.score.on_time();
  return span;
}

void Generation::on_tokens(Tokens tokens) { enqueue({std::move(tokens), steady_now(), std::nullopt}); }

void Generation::on_refused(RequestId id, const Status& status, Duration retry_after) {
  Arrival arrival{{}, steady_now(), from_status(status, retry_after)};
  arrival.tokens.id = id;
  enqueue(std::move(arrival));
}

void Generation::enqueue(Arrival arrival) {
  std::lock_guard lock(mutex_);  // held for the wake too: after cancel() none may run
  if (closed_ || overflow_) return;
  unread_bytes_ += size_of(arrival.tokens);
  if (unread_bytes_ > options_.unread_bytes_max && !arrived_.empty()) {
    overflow_ = true;  // poll() will report it; the nodes need not wait for that
    for (const auto& [id, index] : index_) loop_.cancel(id);
    return;
  }
  arrived_.push_back(std::move(arrival));
  if (arrived_.size() == 1) wake_();
}

Progress Generation::poll() {
  std::vector<Arrival> taken;
  Progress progress;
  bool overflow = false;
  {
    std::lock_guard lock(mutex_);
    while (!arrived_.empty() && taken.size() < kPollMax) {
      unread_bytes_ -= size_of(arrived_.front().tokens);
      taken.push_back(std::move(arrived_.front()));
      arrived_.pop_front();
    }
    progress.more = !arrived_.empty();
    overflow = overflow_;
  }
  for (Arrival& arrival : taken) {
    if (!progress.done) take(arrival, progress);
  }
  if (overflow && !progress.done) {
    fail(overloaded_error("The answer was not read and has been given up.", std::chrono::seconds(1)), progress, /*overflow=*/true);
  }
  return progress;
}

void Generation::take(Arrival& arrival, Progress& progress) {
  const uint32_t index = index_.at(arrival.tokens.id);
  Choice& choice = choices_[index];
  if (arrival.refusal || arrival.tokens.finish) choice.ended = true;
  if (arrival.refusal) return fail(std::move(*arrival.refusal), progress);
  if (choice.stream.finished()) return;
  const std::optional<FinishReason> finish = arrival.tokens.finish;
  if (finish == FinishReason::kError || finish == FinishReason::kCancelled) {
    const StatusCode code = arrival.tokens.error_code == StatusCode::kOk ? StatusCode::kInternal : arrival.tokens.error_code;
    const std::string& why = arrival.tokens.error;
    return fail(from_status(Status(code, why.empty() ? "the request was ended by the node" : why)), progress);
  }
  note_times(choice, arrival);
  if (index % request_.n == 0) {
    uint32_t& cached = cached_tokens_[index / request_.n];
    cached = std::max(cached, arrival.tokens.cached_prompt_tokens);
  }
  ChoiceDelta delta = choice.stream.push(arrival.tokens);
  if (delta.finish) {
    last_finish_ = *delta.finish;
    choice.finish = delta.finish;
    if (!choice.ended) loop_.cancel(choice.id);  // a stop string: the node would go on
    choice.ended = true;
    progress.done = --unfinished_ == 0;
  }
  progress.updates.push_back({index, std::move(delta)});
}

void Generation::fail(ApiError error, Progress& progress, bool overflow) {
  // A reader who let the answer pile up is not served late.
  if (!overflow) failure_status_ = error.http_status;
  progress.failure = std::move(error);
  progress.done = true;
  cancel();
}

void Generation::note_times(Choice& choice, const Arrival& arrival) {
  if (arrival.tokens.tokens.empty()) return;
  choice.first_at = std::min(choice.first_at, arrival.at);
  for (size_t i = 0; i < arrival.tokens.tokens.size(); ++i) {
    choice.score.add_token(arrival.at);
    if (options_.metrics == nullptr) continue;
    options_.metrics->token_lateness(*request_.model, -to_seconds(slack(slo_, started_, choice.score.tokens(), arrival.at)));
  }
  if (!first_token_after_) {
    first_token_after_ = arrival.at - started_;
    queued_ = arrival.tokens.queued;
  }
  if (options_.metrics != nullptr && choice.last_at != TimePoint{}) {
    options_.metrics->token_gap(*request_.model, to_seconds(arrival.at - choice.last_at));
  }
  choice.last_at = arrival.at;
}

Usage Generation::usage() const {
  Usage usage;
  for (const PreparedPrompt& prompt : request_.prompts) usage.prompt_tokens += static_cast<uint32_t>(prompt.ids.size());
  for (const uint32_t cached : cached_tokens_) usage.cached_tokens += cached;
  for (const Choice& choice : choices_) {
    usage.completion_tokens += choice.stream.completion_tokens();
    usage.reasoning_tokens += choice.stream.reasoning_tokens();
  }
  return usage;
}

}  // namespace shoal
