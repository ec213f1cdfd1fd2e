#include "policy/batch.h"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "absl/strings/str_cat.h"
#include "base/check.h"

namespace shoal {
namespace {

uint32_t blocks_for(uint32_t tokens, uint32_t tokens_per_block) {
  return (tokens + tokens_per_block - 1) / tokens_per_block;
}

// What is left of the step's budgets while the plan grows.
struct Budget {
  uint32_t tokens;
  uint32_t logit_rows;
  int64_t blocks;
};

// The end of the slice of `sequence` that fits the budget; == computed if none does.
uint32_t slice_end(const SequenceView& sequence, const Budget& budget) {
  uint32_t rows = std::min(sequence.known - sequence.computed, budget.tokens);
  if (sequence.scores_prompt) rows = std::min(rows, budget.logit_rows);
  const bool samples = sequence.computed + rows == sequence.known;
  if (samples && budget.logit_rows == 0) return sequence.known - sequence.computed > 1 ? sequence.known - 1 : sequence.computed;
  return sequence.computed + rows;
}

void spend(const SequenceView& sequence, uint32_t end, uint32_t tokens_per_block, Budget& budget) {
  const uint32_t rows = end - sequence.computed;
  const uint32_t needed = blocks_for(end, tokens_per_block);
  budget.tokens -= rows;
  budget.logit_rows -= std::min(budget.logit_rows, sequence.scores_prompt ? rows : uint32_t{end == sequence.known});
  budget.blocks -= needed > sequence.blocks_held ? needed - sequence.blocks_held : 0;
}

}  // namespace

BatchPlan plan_batch(const EngineView& view, const BatchLimits& limits) {
  BatchPlan plan;
  Budget budget{limits.tokens_per_step, limits.logit_rows_max, view.blocks_available};
  size_t alive = view.running.size();  // running[alive..) are preempted
  std::vector<Slice> slices(view.running.size());
  bool starved = false;

  // Two passes over the running: decodes keep their token gap, prefill chunks share what is left.
  for (const bool decodes : {true, false}) {
    for (size_t i = 0; i < alive; ++i) {
      const SequenceView& s = view.running[i];
      if ((s.known - s.computed == 1) != decodes) continue;
      uint32_t end = slice_end(s, budget);
      if (end == s.computed) continue;
      // A prefill takes what room there is before it asks for that of others.
      const int64_t room = (int64_t{s.blocks_held} + budget.blocks) * view.tokens_per_block;
      if (room > s.computed && room < end) end = static_cast<uint32_t>(room);
      const uint32_t needed = blocks_for(end, view.tokens_per_block);
      const int64_t grow = needed > s.blocks_held ? needed - s.blocks_held : 0;
      while (grow > budget.blocks && alive > i + 1) {  // the youngest gives way
        const SequenceView& victim = view.running[--alive];
        budget.blocks += victim.blocks_freed;
        plan.preempt.push_back(victim.request);
        if (slices[alive].end > slices[alive].begin) {  // planned already: give its budget back
          Budget undo{0, 0, 0};
          const uint32_t victim_end = slices[alive].end;
          const uint32_t victim_needed = blocks_for(victim_end, view.tokens_per_block);
          undo.blocks = victim_needed > victim.blocks_held ? victim_needed - victim.blocks_held : 0;
          budget.tokens += victim_end - victim.computed;
          budget.logit_rows += victim.scores_prompt ? victim_end - victim.computed : uint32_t{victim_end == victim.known};
          budget.blocks += undo.blocks;
          slices[alive] = {};
        }
      }
      if (grow > budget.blocks) {  // even alone it does not fit now
        starved = true;
        continue;
      }
      spend(s, end, view.tokens_per_block, budget);
      slices[i] = {s.request, s.computed, end};
    }
  }
  for (size_t i = 0; i < alive; ++i) {
    if (slices[i].end > slices[i].begin) plan.slices.push_back(slices[i]);
  }
  if (!plan.preempt.empty() || starved || !limits.admit) return plan;

  for (const SequenceView& s : view.waiting) {
    if (alive + plan.admit.size() >= limits.sequences_max) break;
    const uint32_t end = slice_end(s, budget);
    const uint32_t whole = blocks_for(s.known + 1, view.tokens_per_block);
    const int64_t grow = int64_t{whole} - s.blocks_held + s.prefix_evictable;
    if (end == s.computed || grow > budget.blocks) break;  // first come, first served: nobody overtakes
    budget.blocks -= s.prefix_evictable;
    spend(s, end, view.tokens_per_block, budget);
    // Blocks for the rest of the prompt are spoken for, or the next admission would take them.
    budget.blocks -= int64_t{whole} - std::max(blocks_for(end, view.tokens_per_block), s.blocks_held);
    plan.admit.push_back(s.request);
    plan.slices.push_back({s.request, s.computed, end});
  }
  return plan;
}

void check_plan(const BatchPlan& plan, const EngineView& view, const BatchLimits& limits) {
  std::unordered_map<uint64_t, const SequenceView*> sequences;
  int64_t blocks = view.blocks_available;
  for (const SequenceView& s : view.running) sequences[s.request.value] = &s;
  for (const SequenceView& s : view.waiting) sequences[s.request.value] = &s;
  std::unordered_set<uint64_t> preempted, sliced;
  for (const RequestId id : plan.preempt) {
    CHECK(sequences.contains(id.value));
    CHECK(preempted.insert(id.value).second);
    blocks += sequences[id.value]->blocks_freed;
  }
  if (!view.running.empty()) CHECK(!preempted.contains(view.running.front().request.value));
  CHECK(plan.preempt.empty() || plan.admit.empty());
  uint32_t tokens = 0, logit_rows = 0;
  for (const Slice& slice : plan.slices) {
    CHECK(sequences.contains(slice.request.value));
    CHECK(sliced.insert(slice.request.value).second);
    CHECK(!preempted.contains(slice.request.value));
    const SequenceView& s = *sequences[slice.request.value];
    CHECK_EQ(slice.begin, s.computed);
    CHECK_LT(slice.begin, slice.end);
    CHECK_LE(slice.end, s.known);
    tokens += slice.end - slice.begin;
    logit_rows += s.scores_prompt ? slice.end - slice.begin : uint32_t{slice.end == s.known};
    const uint32_t needed = blocks_for(slice.end, view.tokens_per_block);
    blocks -= needed > s.blocks_held ? needed - s.blocks_held : 0;
  }
  for (const RequestId id : plan.admit) {
    CHECK(sliced.contains(id.value));
    blocks -= sequences[id.value]->prefix_evictable;
  }
  CHECK_LE(tokens, limits.tokens_per_step);
  CHECK_LE(logit_rows, limits.logit_rows_max);
  CHECK_GE(blocks, 0);
  CHECK_LE(view.running.size() - plan.preempt.size() + plan.admit.size(),
           std::max(view.running.size(), size_t{limits.sequences_max}));
}

std::string to_string(const BatchPlan& plan) {
  std::string out;
  for (const RequestId id : plan.preempt) absl::StrAppend(&out, "preempt ", id.value, "; ");
  for (const RequestId id : plan.admit) absl::StrAppend(&out, "admit ", id.value, "; ");
  for (const Slice& s : plan.slices) absl::StrAppend(&out, s.request.value, "[", s.begin, ",", s.end, ") ");
  return out;
}

}  // namespace shoal
