#include "text/grammar/rule_analysis.h"

#include <algorithm>

namespace shoal::grammar {
namespace {

// A rule without unbounded repetition stands in place up to so many nodes; one with it only if it is tiny. The others
// are called, so that what is known of their tokens is known once for all places.
constexpr uint64_t kInPlaceMax = 48;
constexpr uint64_t kInPlaceUnboundedMax = 4;
constexpr uint64_t kCostCap = uint64_t{1} << 40;

using Kind = Expr::Kind;

}  // namespace

StatusOr<RuleAnalysis> RuleAnalysis::of(const ParsedGrammar& grammar) {
  RuleAnalysis out(grammar);
  out.order_rules();
  RETURN_IF_ERROR(out.find_productive_and_nullable());
  RETURN_IF_ERROR(out.refuse_left_recursion());
  if (!out.facts_[grammar.root].productive) return invalid_argument("the grammar can never end: every way through 'root' goes on for ever");
  out.weigh();
  return out;
}

bool RuleAnalysis::productive(ExprId id) const {
  const Expr& e = grammar_->exprs[id];
  const auto is = [this](ExprId child) { return productive(child); };
  switch (e.kind) {
    case Kind::kRule: return facts_[e.value].productive;
    case Kind::kSequence: return std::all_of(e.children.begin(), e.children.end(), is);
    case Kind::kAlternatives: return std::any_of(e.children.begin(), e.children.end(), is);
    case Kind::kRepeat: return e.least == 0 || is(e.children[0]);
    default: return true;
  }
}

bool RuleAnalysis::nullable(ExprId id) const {
  const Expr& e = grammar_->exprs[id];
  const auto is = [this](ExprId child) { return nullable(child); };
  switch (e.kind) {
    case Kind::kLiteral: return grammar_->texts[e.value].empty();
    case Kind::kRule: return facts_[e.value].nullable;
    case Kind::kSequence: return std::all_of(e.children.begin(), e.children.end(), is);
    case Kind::kAlternatives: return std::any_of(e.children.begin(), e.children.end(), is);
    case Kind::kRepeat: return e.least == 0 || is(e.children[0]);
    default: return false;
  }
}

// Least fixed points. Callees come first, so one round is enough for what is not recursive.
Status RuleAnalysis::find_productive_and_nullable() {
  constexpr int kRoundsMax = 200;
  for (int round = 0; round < kRoundsMax; ++round) {
    bool changed = false;
    for (const uint32_t r : callees_first_) {
      RuleFacts& facts = facts_[r];
      const ExprId body = grammar_->rules[r].body;
      const bool productive_now = facts.productive || productive(body), nullable_now = facts.nullable || nullable(body);
      changed |= productive_now != facts.productive || nullable_now != facts.nullable;
      facts.productive = productive_now;
      facts.nullable = nullable_now;
    }
    if (!changed) return OkStatus();
  }
  return invalid_argument("the grammar's rules call each other in too complicated a way");
}

// The rules that `expr` calls; first_only: those that it may call before it has taken anything.
void RuleAnalysis::called_rules(ExprId id, bool first_only, std::vector<uint32_t>& out) const {
  const Expr& e = grammar_->exprs[id];
  if (e.kind == Kind::kRule) out.push_back(e.value);
  for (const ExprId child : e.children) {
    called_rules(child, first_only, out);
    if (first_only && e.kind == Kind::kSequence && !nullable(child)) break;
  }
}

Status RuleAnalysis::refuse_left_recursion() const {
  enum class Mark : uint8_t { kNew, kOpen, kDone };
  std::vector<Mark> marks(facts_.size(), Mark::kNew);
  struct Visit {
    uint32_t rule;
    std::vector<uint32_t> next;
  };
  std::vector<Visit> stack;  // not the machine's own: a chain may be as long as there are rules
  const auto open = [&](uint32_t rule) {
    marks[rule] = Mark::kOpen;
    stack.push_back({rule, {}});
    called_rules(grammar_->rules[rule].body, true, stack.back().next);
  };
  for (uint32_t r = 0; r < facts_.size(); ++r) {
    if (marks[r] == Mark::kNew) open(r);
    while (!stack.empty()) {
      Visit& top = stack.back();
      if (top.next.empty()) {
        marks[top.rule] = Mark::kDone;
        stack.pop_back();
        continue;
      }
      const uint32_t next = top.next.back();
      top.next.pop_back();
      if (marks[next] == Mark::kOpen) {
        return invalid_argument("the rule '", grammar_->rules[next].name, "' is left-recursive: it calls itself before it has matched anything; "
                                "write it with a repetition");
      }
      if (marks[next] == Mark::kNew) open(next);
    }
  }
  return OkStatus();
}

// Tarjan's strongly connected components (1972), without recursion of its own.
struct RuleAnalysis::Components {
  struct Visit {
    uint32_t rule;
    std::vector<uint32_t> next;
  };
  RuleAnalysis& analysis;
  std::vector<uint32_t> low, index, path;
  std::vector<bool> on_path;
  std::vector<Visit> stack;
  uint32_t counter = 0;

  void open(uint32_t rule) {
    low[rule] = index[rule] = ++counter;
    on_path[rule] = true;
    path.push_back(rule);
    stack.push_back({rule, {}});
    std::vector<uint32_t>& next = stack.back().next;
    analysis.called_rules(analysis.grammar_->rules[rule].body, false, next);
    if (std::find(next.begin(), next.end(), rule) != next.end()) analysis.facts_[rule].recursive = true;
  }
  void close(uint32_t rule) {
    if (low[rule] == index[rule]) {
      const bool cycle = path.back() != rule;
      for (bool last = false; !last; path.pop_back()) {
        last = path.back() == rule;
        on_path[path.back()] = false;
        if (cycle) analysis.facts_[path.back()].recursive = true;
        analysis.callees_first_.push_back(path.back());
      }
    }
    stack.pop_back();
    if (!stack.empty()) low[stack.back().rule] = std::min(low[stack.back().rule], low[rule]);
  }
};

// A component is complete after everything that it calls.
void RuleAnalysis::order_rules() {
  const size_t n = facts_.size();
  Components search{*this, std::vector<uint32_t>(n), std::vector<uint32_t>(n), {}, std::vector<bool>(n), {}};
  for (uint32_t r = 0; r < n; ++r) {
    if (search.index[r] == 0) search.open(r);
    while (!search.stack.empty()) {
      Components::Visit& top = search.stack.back();
      if (top.next.empty()) {
        search.close(top.rule);
        continue;
      }
      const uint32_t next = top.next.back();
      top.next.pop_back();
      if (search.index[next] == 0) {
        search.open(next);
      } else if (search.on_path[next]) {
        search.low[top.rule] = std::min(search.low[top.rule], search.index[next]);
      }
    }
  }
}

void RuleAnalysis::weigh() {
  for (const uint32_t r : callees_first_) {
    const ExprId body = grammar_->rules[r].body;
    weigh(body);
    RuleFacts& facts = facts_[r];
    facts.cost = costs_[body];
    facts.unbounded = unbounded_[body];
    facts.in_place = !facts.recursive && facts.cost <= (facts.unbounded ? kInPlaceUnboundedMax : kInPlaceMax);
  }
}

void RuleAnalysis::weigh(ExprId id) {
  const Expr& e = grammar_->exprs[id];
  uint64_t cost = 1;
  bool unbounded = false;
  if (e.kind == Kind::kLiteral) cost = grammar_->texts[e.value].size();
  if (e.kind == Kind::kSet) cost = grammar_->sets[e.value].ranges().back().last < 0x80 ? 1 : 10;
  if (e.kind == Kind::kRule && facts_[e.value].in_place) {
    cost = facts_[e.value].cost;
    unbounded = facts_[e.value].unbounded;
  }
  for (const ExprId child : e.children) {
    weigh(child);
    cost += costs_[child];
    unbounded = unbounded || unbounded_[child];
  }
  if (e.kind == Kind::kRepeat) {
    cost = std::max<uint64_t>(costs_[e.children[0]], 1) * std::max<uint64_t>(e.most == kNoLimit ? e.least + 1 : e.most, 1);
    unbounded = unbounded || e.most == kNoLimit;
  }
  costs_[id] = std::min(cost, kCostCap);
  unbounded_[id] = unbounded;
}

}  // namespace shoal::grammar
