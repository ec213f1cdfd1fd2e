#include "text/grammar/machine.h"

#include <algorithm>

#include "absl/hash/hash.h"
#include "base/check.h"

namespace shoal::grammar {
namespace {

constexpr NodeIndex kNoNode = UINT32_MAX;

}  // namespace

Machine::Machine(Automaton automaton) : automaton_(std::move(automaton)) {
  stacks_ = {{kNoNode, 0}, {kNoNode, 0}};
  visited_.resize(2);
  states_.resize(2);  // 0 is no state
  states_[kDead].next.assign(automaton_.class_byte.size(), kDead);
  ++round_;
  enter(automaton_.start, kEnd);
  start_ = take_state();
}

StackId Machine::push(NodeIndex node, StackId parent) {
  const auto [it, is_new] = stack_ids_.try_emplace(uint64_t{node} << 32 | parent, static_cast<StackId>(stacks_.size()));
  if (is_new) {
    stacks_.push_back({node, parent});
    visited_.push_back(0);
    bytes_ += 48;
  }
  return it->second;
}

void Machine::enter(NodeIndex node, StackId parent) {
  work_.emplace_back(node, parent);
  while (!work_.empty()) {
    const auto [n, below] = work_.back();
    work_.pop_back();
    const StackId stack = push(n, below);
    if (visited_[stack] == round_) continue;
    visited_[stack] = round_;
    if (found_.size() >= kStacksMax || bytes_ > kBytesMax || work_left_ == 0) {
      overflowed_ = true;
      work_.clear();
      return;
    }
    --work_left_;
    const Automaton::Node& at = automaton_.nodes[n];
    if (at.takes_terminals()) found_.push_back(stack);
    for (const Automaton::Call& call : automaton_.calls(at)) {
      // Nothing is kept of a rule that ends with the call: so lists written by recursion need no deeper stack.
      work_.emplace_back(call.start, automaton_.nodes[call.target].only_ends() ? below : push(call.target, below));
    }
    if (!at.final) continue;
    if (below == kEnd || below == kUnknown) {
      found_.push_back(below);
    } else {
      work_.emplace_back(stacks_[below].node, stacks_[below].parent);
    }
  }
}

StateId Machine::take_state() {
  std::sort(found_.begin(), found_.end());
  found_.erase(std::unique(found_.begin(), found_.end()), found_.end());
  if (found_.empty()) return kDead;
  const auto [it, is_new] = state_ids_.try_emplace(found_, static_cast<StateId>(states_.size()));
  if (is_new) {
    states_.push_back({found_, std::vector<StateId>(automaton_.class_byte.size())});
    bytes_ += 160 + found_.size() * 2 * sizeof(StackId) + automaton_.class_byte.size() * sizeof(StateId);
  }
  found_.clear();
  return it->second;
}

StateId Machine::compute_step(StateId state, uint8_t byte_class) {
  const uint8_t byte = automaton_.class_byte[byte_class];
  ++round_;
  for (const StackId stack : states_[state].stacks) {
    if (stack == kEnd || stack == kUnknown) continue;
    const auto [node, parent] = stacks_[stack];
    for (const Automaton::ByteEdge& e : automaton_.bytes(automaton_.nodes[node])) {
      if (e.first <= byte && byte <= e.last) enter(e.target, parent);
    }
  }
  const StateId next = take_state();
  states_[state].next[byte_class] = next;
  return next;
}

StateId Machine::step_token(StateId state, TokenId token) {
  const uint64_t key = uint64_t{state} << 32 | static_cast<uint32_t>(token);
  if (const auto known = token_steps_.find(key); known != token_steps_.end()) return known->second;
  ++round_;
  for (const StackId stack : states_[state].stacks) {
    if (stack == kEnd || stack == kUnknown) continue;
    const auto [node, parent] = stacks_[stack];
    for (const Automaton::TokenEdge& e : automaton_.tokens(automaton_.nodes[node])) {
      if (e.token == token) enter(e.target, parent);
    }
  }
  const StateId next = take_state();
  token_steps_.emplace(key, next);
  bytes_ += 32;
  return next;
}

StateId Machine::unite(StateId a, StateId b) {
  if (a == kDead || a == b) return b;
  if (b == kDead) return a;
  found_ = states_[a].stacks;
  found_.insert(found_.end(), states_[b].stacks.begin(), states_[b].stacks.end());
  return take_state();
}

StateId Machine::at_node(NodeIndex node) {
  const auto [it, is_new] = node_states_.try_emplace(node, 0);
  if (is_new) {
    found_ = {push(node, kUnknown)};
    it->second = take_state();
  }
  return it->second;
}

StateId Machine::below(StackId stack) {
  const StackId parent = stacks_[stack].parent;
  const auto [it, is_new] = below_.try_emplace(parent, 0);
  if (is_new) {
    ++round_;
    if (parent == kEnd || parent == kUnknown) {
      found_.push_back(parent);
    } else {
      enter(stacks_[parent].node, stacks_[parent].parent);
    }
    const StateId state = take_state();
    below_[parent] = state;
    bytes_ += 16;
    return state;
  }
  return it->second;
}

bool Machine::holds(StateId state, StackId stack) const {
  return std::binary_search(states_[state].stacks.begin(), states_[state].stacks.end(), stack);
}

}  // namespace shoal::grammar
