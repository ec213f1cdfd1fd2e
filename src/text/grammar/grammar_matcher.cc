#include "text/grammar/grammar_matcher.h"

#include <algorithm>
#include <bit>

#include "text/grammar/gbnf_parser.h"
#include "text/grammar/lookalikes.h"

namespace shoal {
namespace {

using grammar::Automaton;
using grammar::Machine;
using grammar::NodeIndex;
using grammar::StackId;
using grammar::StateId;
using grammar::TriggerScanner;

constexpr size_t kMachineBytesMax = 32u << 20;
constexpr size_t kCacheBytesMax = 64u << 20;
constexpr size_t kFewNodes = 4096;      // a walk this short is not worth remembering by node
constexpr size_t kFewTokens = 256;      // kept as a list
constexpr size_t kPlacesMax = 32;       // a state of more places is walked as a whole

void set(TokenMask& mask, TokenId id) {
  const auto i = static_cast<size_t>(id);
  mask.words[i / 64] |= uint64_t{1} << (i % 64);
}

uint32_t count_of(const std::vector<uint64_t>& words) {
  uint32_t count = 0;
  for (const uint64_t word : words) count += static_cast<uint32_t>(std::popcount(word));
  return count;
}

size_t word_count(uint32_t size) { return (size_t{size} + 63) / 64; }

Status check_triggers(const std::vector<std::string>& triggers) {
  size_t bytes = 0;
  for (const std::string& trigger : triggers) {
    if (trigger.empty()) return invalid_argument("a trigger of the grammar is empty");
    bytes += trigger.size();
  }
  if (bytes > TriggerScanner::kBytesMax) return invalid_argument("the grammar's triggers have more than ", TriggerScanner::kBytesMax, " bytes");
  return OkStatus();
}

}  // namespace

Status check_grammar(const Grammar& grammar, const grammar::TokenLookup& token_id, uint32_t vocab_size, const grammar::GrammarLimits& limits) {
  RETURN_IF_ERROR(check_triggers(grammar.triggers));
  ASSIGN_OR_RETURN(const grammar::ParsedGrammar parsed, grammar::parse_gbnf(grammar.gbnf, limits));
  return compile(parsed, token_id, vocab_size, limits).status();
}

StatusOr<std::unique_ptr<GrammarMatcher>> GrammarMatcher::create(const Grammar& grammar, std::shared_ptr<const TokenVocabulary> vocabulary,
                                                                 const grammar::GrammarLimits& limits) {
  RETURN_IF_ERROR(check_triggers(grammar.triggers));
  ASSIGN_OR_RETURN(const grammar::ParsedGrammar parsed, grammar::parse_gbnf(grammar.gbnf, limits));
  const auto token_id = [&](std::string_view spelling) { return vocabulary->token_id(spelling); };
  ASSIGN_OR_RETURN(Automaton automaton, compile(parsed, token_id, vocabulary->size(), limits));
  return std::unique_ptr<GrammarMatcher>(new GrammarMatcher(std::move(automaton), grammar.triggers, std::move(vocabulary)));
}

GrammarMatcher::GrammarMatcher(Automaton automaton, const std::vector<std::string>& triggers, std::shared_ptr<const TokenVocabulary> vocabulary)
    : vocabulary_(std::move(vocabulary)), scanner_(triggers), path_(vocabulary_->token_bytes_max() + 1) {
  automaton_bytes_ = automaton.nodes.size() * sizeof(Automaton::Node) + automaton.byte_edges.size() * sizeof(Automaton::ByteEdge) +
                     automaton.call_edges.size() * sizeof(Automaton::Call);
  lookalikes_ = grammar::lookalikes(automaton, vocabulary_->token_bytes_max());
  automaton_bytes_ += lookalikes_.size() * sizeof(NodeIndex);
  machine_ = std::make_unique<Machine>(std::move(automaton));
}

GrammarMatcher::Position GrammarMatcher::start() const {
  return scanner_.empty() ? Position{false, machine_->start(), generation_} : Position{true, scanner_.start(), generation_};
}

Status GrammarMatcher::too_ambiguous() const {
  return absl::ResourceExhaustedError("the grammar is too ambiguous: following it would take too much work; write it so that fewer of its rules match the same text");
}

void GrammarMatcher::trim() {
  if (machine_->bytes() > kMachineBytesMax || machine_->overflowed()) {
    machine_ = std::make_unique<Machine>(machine_->automaton());
    ++generation_;
    masks_.clear();
    free_masks_.clear();
    cache_bytes_ = kCacheBytesMax + 1;  // and what is known by node, for simplicity of the count
  }
  if (cache_bytes_ <= kCacheBytesMax) return;
  masks_.clear();
  free_masks_.clear();
  locals_.clear();
  cache_bytes_ = 0;
}

StateId GrammarMatcher::after_bytes(StateId state, std::string_view bytes) {
  for (const char c : bytes) {
    if (state == Machine::kDead) break;
    state = machine_->step(state, static_cast<uint8_t>(c));
  }
  return state;
}

Status GrammarMatcher::advance(Position& at, TokenId token) {
  machine_->begin_operation();
  std::string_view bytes = vocabulary_->bytes(token);
  StateId next = Machine::kDead;
  if (at.free) {
    uint32_t scan = at.state;
    while (!bytes.empty() && scan != TriggerScanner::kFound) {
      scan = scanner_.step(scan, static_cast<uint8_t>(bytes[0]));
      bytes.remove_prefix(1);
    }
    if (scan != TriggerScanner::kFound) {
      at.state = scan;
      return OkStatus();
    }
    next = after_bytes(machine_->start(), bytes);
  } else {
    if (!bytes.empty() && !vocabulary_->is_control(token)) next = after_bytes(at.state, bytes);
    next = machine_->unite(next, machine_->step_token(at.state, token));
  }
  if (machine_->overflowed()) return too_ambiguous();
  if (next == Machine::kDead) return invalid_argument("token ", token, " does not follow the grammar");
  at.free = false;
  at.state = next;
  return OkStatus();
}

bool GrammarMatcher::complete(const Position& at) const {
  return !at.free && machine_->holds(at.state, Machine::kEnd) && machine_->stacks(at.state).size() == 1;
}

StatusOr<GrammarMatcher::Allowed> GrammarMatcher::allowed(const Position& at) {
  machine_->begin_operation();
  Allowed out;
  if (at.free) {
    out.mask = free_mask(at.state);
    out.may_end = true;
  } else {
    out.mask = mask_of(at.state);
    out.may_end = machine_->holds(at.state, Machine::kEnd);
    out.complete = complete(at);
  }
  if (machine_->overflowed()) return too_ambiguous();
  return out;
}

// Visits the nodes of the trie below `from`, whose bytes lead from `state` to a live one; false if there are more than
// nodes_max of them.
template <typename Visit>
bool GrammarMatcher::walk(uint32_t from, StateId state, size_t nodes_max, Visit&& visit) {
  const uint32_t end = vocabulary_->trie_node(from).subtree_end;
  path_[vocabulary_->trie_node(from).depth] = state;
  for (uint32_t i = from + 1; i < end;) {
    const TokenVocabulary::TrieNode& node = vocabulary_->trie_node(i);
    const StateId next = machine_->step(path_[node.depth - 1], node.byte);
    if (next == Machine::kDead) {
      i = node.subtree_end;
      continue;
    }
    if (nodes_max-- == 0) return false;
    path_[node.depth] = next;
    visit(i, next);
    ++i;
  }
  return true;
}

const GrammarMatcher::Local& GrammarMatcher::local(NodeIndex node) {
  node = lookalikes_[node];
  if (const auto known = locals_.find(node); known != locals_.end()) return known->second;
  Local out;
  TokenMask mask{std::vector<uint64_t>(word_count(vocabulary_->size())), 0};
  const auto ids = vocabulary_->sorted_ids();
  walk(0, machine_->at_node(node), SIZE_MAX, [&](uint32_t i, StateId state) {
    const TokenVocabulary::TrieNode& here = vocabulary_->trie_node(i);
    const uint32_t tokens_end = vocabulary_->trie_node(i + 1).tokens;
    for (uint32_t t = here.tokens; t < tokens_end; ++t) set(mask, ids[t]);
    if (machine_->stacks(state)[0] == Machine::kUnknown && here.subtree_end > i + 1) {
      out.escapes.push_back(i);
      out.escape_nodes += here.subtree_end - i - 1;
    }
  });
  if (count_of(mask.words) <= kFewTokens) {
    for (const TokenId id : ids) {
      if (mask.holds(id)) out.tokens.push_back(id);
    }
  } else {
    out.words = std::move(mask.words);
  }
  cache_bytes_ += 128 + out.words.size() * 8 + out.tokens.size() * 4 + out.escapes.size() * 4;
  return locals_.emplace(node, std::move(out)).first->second;
}

// The tokens whose bytes lead on from `state`.
void GrammarMatcher::add_bytes_of(StateId state, TokenMask& mask) {
  const auto ids = vocabulary_->sorted_ids();
  const auto accept = [&](uint32_t i, StateId) {
    const uint32_t end = vocabulary_->trie_node(i + 1).tokens;
    for (uint32_t t = vocabulary_->trie_node(i).tokens; t < end; ++t) set(mask, ids[t]);
  };
  const std::vector<StackId> places(machine_->stacks(state).begin(), machine_->stacks(state).end());
  const bool known_by_node = places.size() <= kPlacesMax && std::all_of(places.begin(), places.end(), [this](StackId place) {
    return place == Machine::kEnd || locals_.contains(lookalikes_[machine_->node(place)]);
  });
  if (!known_by_node && walk(0, state, kFewNodes, accept)) return;
  size_t below = 0;
  for (const StackId place : places) {
    if (places.size() <= kPlacesMax && place != Machine::kEnd) below += local(machine_->node(place)).escape_nodes;
  }
  if (places.size() > kPlacesMax || below > vocabulary_->trie().size()) {
    walk(0, state, SIZE_MAX, accept);
    return;
  }
  for (const StackId place : places) {
    if (place == Machine::kEnd) continue;
    const Local& known = local(machine_->node(place));
    for (size_t w = 0; w < known.words.size(); ++w) mask.words[w] |= known.words[w];
    for (const TokenId id : known.tokens) set(mask, id);
    const StateId entered_from = machine_->below(place);
    for (const uint32_t node : known.escapes) walk(node, entered_from, SIZE_MAX, accept);
  }
}

void GrammarMatcher::add_token_terminals(StateId state, TokenMask& mask) {
  const Automaton& automaton = machine_->automaton();
  for (const StackId place : machine_->stacks(state)) {
    if (place == Machine::kEnd) continue;
    for (const Automaton::TokenEdge& e : automaton.tokens(automaton.nodes[machine_->node(place)])) set(mask, e.token);
  }
}

std::shared_ptr<const TokenMask> GrammarMatcher::mask_of(StateId state) {
  if (const auto known = masks_.find(state); known != masks_.end()) return known->second;
  auto mask = std::make_shared<TokenMask>();
  mask->words.resize(word_count(vocabulary_->size()));
  add_bytes_of(state, *mask);
  add_token_terminals(state, *mask);
  mask->count = count_of(mask->words);
  cache_bytes_ += 96 + mask->words.size() * 8;
  masks_.emplace(state, mask);
  return mask;
}

// Before a trigger everything may come, but for tokens in which a trigger ends and the rest of which the grammar refuses.
std::shared_ptr<const TokenMask> GrammarMatcher::free_mask(uint32_t scanner_state) {
  if (const auto known = free_masks_.find(scanner_state); known != free_masks_.end()) return known->second;
  std::shared_ptr<TokenMask> mask;
  for (uint32_t i = 0; i < vocabulary_->size(); ++i) {
    std::string_view bytes = vocabulary_->bytes(static_cast<TokenId>(i));
    uint32_t scan = scanner_state;
    while (!bytes.empty() && scan != TriggerScanner::kFound) {
      scan = scanner_.step(scan, static_cast<uint8_t>(bytes[0]));
      bytes.remove_prefix(1);
    }
    if (scan != TriggerScanner::kFound || after_bytes(machine_->start(), bytes) != Machine::kDead) continue;
    if (!mask) {
      mask = std::make_shared<TokenMask>();
      mask->words.assign(word_count(vocabulary_->size()), ~uint64_t{0});
    }
    mask->words[i / 64] &= ~(uint64_t{1} << (i % 64));
  }
  if (mask) {
    mask->count = count_of(mask->words);
    cache_bytes_ += mask->words.size() * 8;
  }
  return free_masks_.emplace(scanner_state, std::move(mask)).first->second;
}

}  // namespace shoal
