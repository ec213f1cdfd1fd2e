#include "runner/step_runner.h"

#include "base/check.h"

namespace shoal {
namespace {

uint32_t block_count(const StepSlice& slice) { return static_cast<uint32_t>(slice.blocks.size()); }

// The rows of a slice whose logits are wanted, in ascending order: position p - 1 judges prompt token p, the last row
// gives the next token.
void append_logit_rows(const StepSlice& slice, uint32_t row_begin, std::vector<uint32_t>& rows) {
  for (uint32_t token = slice.score_begin; token < slice.score_end; ++token) rows.push_back(row_begin + token - 1 - slice.begin);
  if (slice.sample) rows.push_back(row_begin + static_cast<uint32_t>(slice.tokens.size()) - 1);
}

}  // namespace

void StepRunner::sample(const StepSlice& slice, std::span<const float> logits, TokenConstraints* constraints, SliceResult& out) {
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

SliceResult StepRunner::pick(const StepSlice& slice, uint32_t vocab_size, const float*& row, TokenConstraints* constraints) {
  SliceResult out;
  out.request = slice.request;
  const Request& request = *slice.params;
  for (uint32_t token = slice.score_begin; token < slice.score_end; ++token, row += vocab_size) {
    SampledToken scored;
    out.finite &= sampler_.score({row, vocab_size}, request.prompt[token], *request.prompt_logprobs, scored);
    out.scored.push_back(std::move(scored));
  }
  if (!slice.sample) return out;
  sample(slice, {row, vocab_size}, constraints, out);
  row += vocab_size;
  return out;
}

StepResult StepRunner::run(Model& model, uint32_t vocab_size, const ResolvedStep& step, TokenConstraints* constraints) {
  tokens_.clear();
  slices_.clear();
  logit_rows_.clear();
  size_t first_block = 0;
  for (const StepSlice& slice : step.input.slices) {
    const auto rows = static_cast<uint32_t>(slice.tokens.size());
    append_logit_rows(slice, static_cast<uint32_t>(tokens_.size()), logit_rows_);
    tokens_.insert(tokens_.end(), slice.tokens.begin(), slice.tokens.end());
    slices_.push_back({rows, slice.begin, slice.prompt_length, {step.blocks.data() + first_block, block_count(slice)}});
    first_block += block_count(slice);
  }
  CHECK_EQ(first_block, step.blocks.size());
  logits_.resize(logit_rows_.size() * vocab_size);
  StepResult result{step.input.step, {}};
  if (const Status computed = model.forward({tokens_, slices_, logit_rows_}, workspace_, logits_); !computed.ok()) {
    for (const StepSlice& slice : step.input.slices) result.slices.push_back({.request = slice.request, .error = computed});
    return result;
  }
  const float* row = logits_.data();
  for (const StepSlice& slice : step.input.slices) result.slices.push_back(pick(slice, vocab_size, row, constraints));
  return result;
}

}  // namespace shoal
