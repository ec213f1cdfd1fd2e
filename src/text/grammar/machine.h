// Runs an automaton: where a text may be in its grammar after each byte. A place is a stack of nodes; a state is the set
// of all places that the text so far allows. Stacks and states are interned, so that equal ones have equal ids and
// everything that is found out about a state is found out once.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "text/grammar/automaton.h"

namespace shoal::grammar {

using StackId = uint32_t;
using StateId = uint32_t;

class Machine {
 public:
  static constexpr StackId kEnd = 0;      // the grammar is complete
  static constexpr StackId kUnknown = 1;  // a rule has ended that was entered from nobody knows where
  static constexpr StateId kDead = 1;     // no place is left
  static constexpr size_t kStacksMax = 4096;  // places of one state at once

  explicit Machine(Automaton automaton);

  const Automaton& automaton() const { return automaton_; }
  StateId start() const { return start_; }
  // After one more byte.
  StateId step(StateId state, uint8_t byte) {
    const StateId known = states_[state].next[automaton_.byte_class[byte]];
    return known != 0 ? known : compute_step(state, automaton_.byte_class[byte]);
  }
  // After a token terminal.
  StateId step_token(StateId state, TokenId token);
  // All places of both.
  StateId unite(StateId a, StateId b);
  // The state in which `node` alone is active, in a rule that was entered from nobody knows where.
  StateId at_node(NodeIndex node);
  // The state after the rule on top of `stack` has ended: that of what lies below. REQUIRES: not kEnd or kUnknown.
  StateId below(StackId stack);

  std::span<const StackId> stacks(StateId state) const { return states_[state].stacks; }  // ascending; invalidated by steps
  NodeIndex node(StackId stack) const { return stacks_[stack].node; }
  bool holds(StateId state, StackId stack) const;

  // Of all stacks and states. The owner starts anew when it gets large.
  size_t bytes() const { return bytes_; }
  // Some state had more than kStacksMax places, or the memory or the work of one operation was more than any sensible
  // grammar needs: the states from there on are incomplete.
  bool overflowed() const { return overflowed_; }
  void begin_operation() { work_left_ = kWorkMax; }

 private:
  struct Stack {
    NodeIndex node;
    StackId parent;
  };
  struct State {
    std::vector<StackId> stacks;
    std::vector<StateId> next;  // by byte class; 0: not known yet
  };

  StateId compute_step(StateId state, uint8_t byte_class);
  StackId push(NodeIndex node, StackId parent);
  // Adds every place that `node` on top of `parent` amounts to without taking anything.
  void enter(NodeIndex node, StackId parent);
  StateId take_state();

  static constexpr size_t kBytesMax = 256u << 20;
  static constexpr size_t kWorkMax = 20'000'000;  // places entered

  Automaton automaton_;
  std::vector<Stack> stacks_;
  absl::flat_hash_map<uint64_t, StackId> stack_ids_;
  std::vector<State> states_;
  absl::flat_hash_map<std::vector<StackId>, StateId> state_ids_;
  absl::flat_hash_map<StackId, StateId> below_;
  absl::flat_hash_map<uint64_t, StateId> token_steps_;
  absl::flat_hash_map<NodeIndex, StateId> node_states_;
  StateId start_ = 0;
  size_t bytes_ = 0;
  size_t work_left_ = kWorkMax;
  bool overflowed_ = false;

  // Scratch of one step.
  std::vector<std::pair<NodeIndex, StackId>> work_;
  std::vector<StackId> found_;
  std::vector<uint32_t> visited_;  // by stack, the round in which it was entered
  uint32_t round_ = 0;
};

}  // namespace shoal::grammar
