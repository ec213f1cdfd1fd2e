#include "policy/batch.h"

#include <algorithm>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"

namespace shoal {
namespace {

uint32_t blocks_for(uint32_t tokens, uint32_t tokens_per_block) {
  return (tokens + tokens_per_block - 1) / tokens_per_block;
}

// Blocks that must be had for tokens [0, end) beyond those held.
int64_t growth(const SequenceView& s, uint32_t end, uint32_t tokens_per_block) {
  const uint32_t needed = blocks_for(end, tokens_per_block);
  return needed > s.blocks_held ? needed - s.blocks_held : 0;
}

uint32_t logit_rows_of(const SequenceView& s, uint32_t end) {
  return s.scores_prompt ? end - s.computed : uint32_t{end == s.known};
}

bool passed_over(const SequenceView& s) { return s.passed_over; }

class Planner {
 public:
  Planner(const EngineView& view, const BatchLimits& limits)
      : view_(view),
        limits_(limits),
        tokens_(limits.tokens_per_step),
        logit_rows_(limits.logit_rows_max),
        blocks_(view.blocks_available),
        alive_(view.running.size()),
        taking_part_(static_cast<size_t>(std::find_if(view.running.begin(), view.running.end(), passed_over) - view.running.begin())),
        ends_(view.running.size(), 0) {}

  BatchPlan run() {
    // Decodes keep their token gap; prefill chunks share what is left.
    for (const bool decodes : {true, false}) {
      for (size_t i = 0; i < std::min(alive_, taking_part_) && places_ > 0; ++i) {
        const SequenceView& s = view_.running[i];
        if ((s.known - s.computed == 1) == decodes) place_running(i);
      }
    }
    for (size_t i = 0; i < alive_; ++i) {
      const SequenceView& s = view_.running[i];
      if (ends_[i] > s.computed) plan_.slices.push_back({s.request, s.computed, ends_[i]});
    }
    if (plan_.preempt.empty() && !starved_ && limits_.admit) admit_waiting();
    return std::move(plan_);
  }

 private:
  // The end of the slice that fits the budgets of tokens and logit rows; == computed if none does.
  uint32_t slice_end(const SequenceView& s) const {
    uint32_t rows = std::min(s.known - s.computed, tokens_);
    if (s.scores_prompt) rows = std::min(rows, logit_rows_);
    const bool samples = s.computed + rows == s.known;
    return s.computed + rows - (samples && rows > 0 && logit_rows_ == 0 ? 1 : 0);
  }

  void spend(const SequenceView& s, uint32_t end) {
    tokens_ -= end - s.computed;
    logit_rows_ -= logit_rows_of(s, end);
    blocks_ -= growth(s, end, view_.tokens_per_block);
  }

  void preempt_youngest() {
    const SequenceView& victim = view_.running[--alive_];
    blocks_ += victim.blocks_freed;
    plan_.preempt.push_back(victim.request);
    if (ends_[alive_] == 0) return;
    ++places_;
    tokens_ += ends_[alive_] - victim.computed;  // it was planned already
    logit_rows_ += logit_rows_of(victim, ends_[alive_]);
    blocks_ += growth(victim, ends_[alive_], view_.tokens_per_block);
  }

  void place_running(size_t i) {
    const SequenceView& s = view_.running[i];
    uint32_t end = slice_end(s);
    if (end == s.computed) return;
    // A prefill takes what room there is before it asks for that of others.
    const int64_t room = (int64_t{s.blocks_held} + blocks_) * view_.tokens_per_block;
    if (room > s.computed && room < end) end = static_cast<uint32_t>(room);
    const int64_t grow = growth(s, end, view_.tokens_per_block);
    while (grow > blocks_ && alive_ > i + 1) preempt_youngest();
    if (grow > blocks_) {  // even alone it does not fit now
      starved_ = true;
      return;
    }
    spend(s, end);
    ends_[i] = end;
    --places_;
  }

  void admit_waiting() {
    for (const SequenceView& s : view_.waiting) {
      if (std::min(alive_, taking_part_) + plan_.admit.size() >= limits_.sequences_max || plan_.admit.size() >= limits_.admissions_max) break;
      const uint32_t end = slice_end(s);
      const int64_t whole = growth(s, s.known + 1, view_.tokens_per_block) + s.state_blocks;
      if (end == s.computed || whole + s.prefix_evictable > blocks_) break;  // first come, first served
      tokens_ -= end - s.computed;
      logit_rows_ -= logit_rows_of(s, end);
      // Blocks for the rest of the prompt are spoken for, or the next admission would take them.
      blocks_ -= whole + s.prefix_evictable;
      plan_.admit.push_back(s.request);
      plan_.slices.push_back({s.request, s.computed, end});
    }
  }

  const EngineView& view_;
  const BatchLimits& limits_;
  uint32_t tokens_, logit_rows_;  // what is left of the step's budgets
  int64_t blocks_;
  size_t alive_;                  // running[alive_..) are preempted
  const size_t taking_part_;      // running[taking_part_..) are passed over
  size_t places_ = limits_.sequences_max;
  std::vector<uint32_t> ends_;    // [running] end of its slice; 0: none
  bool starved_ = false;
  BatchPlan plan_;
};

}  // namespace

BatchPlan plan_batch(const EngineView& view, const BatchLimits& limits) { return Planner(view, limits).run(); }

void check_plan(const BatchPlan& plan, const EngineView& view, const BatchLimits& limits) {
  absl::flat_hash_map<RequestId, const SequenceView*> sequences;
  int64_t blocks = view.blocks_available;
  for (const SequenceView& s : view.running) sequences[s.request] = &s;
  for (const SequenceView& s : view.waiting) sequences[s.request] = &s;
  absl::flat_hash_set<RequestId> preempted, sliced;
  for (const RequestId id : plan.preempt) {
    CHECK(sequences.contains(id));
    CHECK(preempted.insert(id).second);
    blocks += sequences[id]->blocks_freed;
  }
  if (!view.running.empty()) CHECK(!preempted.contains(view.running.front().request));
  CHECK(plan.preempt.empty() || plan.admit.empty());
  uint32_t tokens = 0, logit_rows = 0;
  for (const Slice& slice : plan.slices) {
    CHECK(sequences.contains(slice.request));
    CHECK(sliced.insert(slice.request).second);
    CHECK(!preempted.contains(slice.request) && !sequences[slice.request]->passed_over);
    const SequenceView& s = *sequences[slice.request];
    CHECK_EQ(slice.begin, s.computed);
    CHECK_LT(slice.begin, slice.end);
    CHECK_LE(slice.end, s.known);
    tokens += slice.end - slice.begin;
    logit_rows += s.scores_prompt ? slice.end - slice.begin : uint32_t{slice.end == s.known};
    const uint32_t needed = blocks_for(slice.end, view.tokens_per_block);
    blocks -= needed > s.blocks_held ? needed - s.blocks_held : 0;
  }
  for (const RequestId id : plan.admit) {
    CHECK(sliced.contains(id));
    blocks -= sequences[id]->prefix_evictable + sequences[id]->state_blocks;
  }
  CHECK_LE(plan.admit.size(), size_t{limits.admissions_max});
  CHECK_LE(tokens, limits.tokens_per_step);
  CHECK_LE(logit_rows, limits.logit_rows_max);
  CHECK_GE(blocks, 0);
  CHECK_LE(plan.slices.size(), size_t{limits.sequences_max});
  const auto running = static_cast<size_t>(std::count_if(view.running.begin(), view.running.end(), [&](const SequenceView& s) { return !s.passed_over && !preempted.contains(s.request); }));
  CHECK_LE(running + plan.admit.size(), std::max(running, size_t{limits.sequences_max}));
}

std::string to_string(const BatchPlan& plan) {
  std::string out;
  for (const RequestId id : plan.preempt) absl::StrAppend(&out, "preempt ", id.text(), "; ");
  for (const RequestId id : plan.admit) absl::StrAppend(&out, "admit ", id.text(), "; ");
  for (const Slice& s : plan.slices) absl::StrAppend(&out, s.request.text(), "[", s.begin, ",", s.end, ") ");
  return out;
}

}  // namespace shoal
