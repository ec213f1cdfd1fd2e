#include "text/grammar/nfa.h"

#include <algorithm>

#include "absl/container/flat_hash_map.h"
#include "absl/hash/hash.h"
#include "text/tokenizer/unicode.h"

namespace shoal::grammar {
namespace {

using Kind = Expr::Kind;
constexpr uint64_t kCopiesMax = 30'000;  // nodes of a repetition that is written out; beyond, its body is called

// ---- UTF-8 ----------------------------------------------------------------------------------------------------------

struct ByteRange {
  uint8_t first, last;
  friend auto operator<=>(const ByteRange&, const ByteRange&) = default;
};
using ByteRanges = std::vector<ByteRange>;

size_t utf8_length(char32_t c) { return c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4; }

// The code points [first, last], which hold no surrogate, as sequences of byte ranges: cut where the length changes,
// then where a lower byte does not run over its whole range.
void utf8_sequences(char32_t first, char32_t last, std::vector<ByteRanges>& out) {
  for (const char32_t border : {0x7Fu, 0x7FFu, 0xFFFFu}) {
    if (first <= border && last > border) {
      utf8_sequences(first, border, out);
      return utf8_sequences(border + 1, last, out);
    }
  }
  for (size_t i = 1; i < utf8_length(first); ++i) {
    const char32_t low = (char32_t{1} << (6 * i)) - 1;
    if ((first & ~low) == (last & ~low)) continue;
    if ((first & low) != 0) {
      utf8_sequences(first, first | low, out);
      return utf8_sequences((first | low) + 1, last, out);
    }
    if ((last & low) != low) {
      utf8_sequences(first, (last & ~low) - 1, out);
      return utf8_sequences(last & ~low, last, out);
    }
  }
  const std::string a = unicode::encode(first), b = unicode::encode(last);
  ByteRanges sequence;
  for (size_t i = 0; i < a.size(); ++i) sequence.push_back({static_cast<uint8_t>(a[i]), static_cast<uint8_t>(b[i])});
  out.push_back(std::move(sequence));
}

// ---- subsets --------------------------------------------------------------------------------------------------------

using NodeSet = std::vector<uint32_t>;  // ascending

class Subsets {
 public:
  explicit Subsets(const Nfa& nfa) : nfa_(nfa), seen_(nfa.edges.size(), 0) {}

  // All that `nodes` reach by empty edges, without those that only have such.
  NodeSet closure(const NodeSet& nodes) {
    ++round_;
    NodeSet work = nodes, out;
    while (!work.empty()) {
      const uint32_t n = work.back();
      work.pop_back();
      if (seen_[n] == round_) continue;
      seen_[n] = round_;
      if (!nfa_.edges[n].empty() || n == nfa_.end) out.push_back(n);
      work.insert(work.end(), nfa_.empty[n].begin(), nfa_.empty[n].end());
    }
    std::sort(out.begin(), out.end());
    return out;
  }

 private:
  const Nfa& nfa_;
  std::vector<uint32_t> seen_;
  uint32_t round_ = 0;
};

// The edges of a set of nodes with disjoint labels, each to the set of all its targets.
std::vector<std::pair<Label, NodeSet>> disjoint_edges(const Nfa& nfa, const NodeSet& nodes) {
  std::map<Label, NodeSet> other;
  std::vector<Nfa::Edge> bytes;
  std::vector<uint32_t> borders;
  for (const uint32_t n : nodes) {
    for (const Nfa::Edge& e : nfa.edges[n]) {
      if (e.label.kind != Label::Kind::kByte) {
        other[e.label].push_back(e.target);
        continue;
      }
      bytes.push_back(e);
      borders.push_back(e.label.first);
      borders.push_back(e.label.last + 1);
    }
  }
  std::sort(borders.begin(), borders.end());
  borders.erase(std::unique(borders.begin(), borders.end()), borders.end());
  std::vector<NodeSet> targets(borders.size());
  for (const Nfa::Edge& e : bytes) {
    auto i = std::lower_bound(borders.begin(), borders.end(), e.label.first) - borders.begin();
    for (; borders[i] <= e.label.last; ++i) targets[i].push_back(e.target);
  }
  std::vector<std::pair<Label, NodeSet>> out;
  for (size_t i = 0; i < targets.size(); ++i) {
    if (!targets[i].empty()) out.push_back({Label{Label::Kind::kByte, borders[i], borders[i + 1] - 1}, std::move(targets[i])});
  }
  for (auto& [label, set] : other) out.push_back({label, std::move(set)});
  return out;
}

StatusOr<std::vector<DfaNode>> without_empty_edges(const Nfa& nfa) {
  constexpr size_t kEdgesMax = 1'000'000;
  size_t edges = 0;
  Subsets subsets(nfa);
  std::vector<DfaNode> out(nfa.edges.size() + 1);
  const auto fill = [&](DfaNode& node, uint32_t from) {
    for (const uint32_t n : subsets.closure({from})) {
      node.final |= n == nfa.end;
      for (const Nfa::Edge& e : nfa.edges[n]) node.edges.push_back({e.label, e.target + 1});
    }
    edges += node.edges.size();
  };
  fill(out[0], nfa.start);
  for (uint32_t n = 0; n < nfa.edges.size() && edges <= kEdgesMax; ++n) fill(out[n + 1], n);
  if (edges > kEdgesMax) return invalid_argument("the grammar is too large: repetitions of what may be empty, or that overlap");
  return out;
}

}  // namespace

uint32_t NfaBuilder::node() {
  if (nfa_.edges.size() >= nodes_max_ && ok()) status_ = invalid_argument("the grammar is too large: more than ", nodes_max_, " nodes; use shorter bounds or fewer alternatives");
  if (!ok()) return 0;
  nfa_.edges.emplace_back();
  nfa_.empty.emplace_back();
  return static_cast<uint32_t>(nfa_.edges.size() - 1);
}

StatusOr<Nfa> NfaBuilder::build(ExprId body) {
  nfa_ = {};
  status_ = OkStatus();
  nfa_.start = node();
  nfa_.end = node();
  add(body, nfa_.start, nfa_.end);
  if (!ok()) return status_;
  return std::move(nfa_);
}

void NfaBuilder::add(ExprId expr, uint32_t from, uint32_t to) {
  if (!ok()) return;
  const Expr& e = grammar_.exprs[expr];
  switch (e.kind) {
    case Kind::kLiteral: {
      for (const char c : grammar_.texts[e.value]) {
        const uint32_t next = node();
        const auto byte = static_cast<uint8_t>(c);
        edge(from, {Label::Kind::kByte, byte, byte}, next);
        from = next;
      }
      nfa_.empty[from].push_back(to);
      return;
    }
    case Kind::kSet: return add_set(grammar_.sets[e.value], from, to);
    case Kind::kTokenId: case Kind::kTokenText: return add_token(e, from, to);
    case Kind::kRule: {
      const ExprId body = grammar_.rules[e.value].body;
      if (analysis_.rule(e.value).in_place) return add(body, from, to);
      const RuleIndex rule = index_of_(body);
      return edge(from, {Label::Kind::kCall, rule, rule}, to);
    }
    case Kind::kSequence: {
      for (const ExprId child : e.children) {
        const uint32_t next = node();
        add(child, from, next);
        from = next;
      }
      nfa_.empty[from].push_back(to);
      return;
    }
    case Kind::kAlternatives: return add_alternatives(e, from, to);
    case Kind::kRepeat: return add_repeat(e, from, to);
  }
}

void NfaBuilder::add_alternatives(const Expr& e, uint32_t from, uint32_t to) {
  for (const ExprId child : e.children) {
    if (!analysis_.productive(child)) continue;  // leads nowhere
    const uint32_t begin = node();
    if (!ok()) return;
    nfa_.empty[from].push_back(begin);
    add(child, begin, to);
  }
}

// from -> item -> ... -> item -> to, with ways out after the least number, and a loop on the last if there is no limit.
void NfaBuilder::add_repeat(const Expr& e, uint32_t from, uint32_t to) {
  const ExprId item = e.children[0];
  const bool endless = e.most == kNoLimit;
  const uint32_t copies = endless ? std::max(e.least, 1u) : e.most;
  if (copies == 0 || !analysis_.productive(item)) {
    nfa_.empty[from].push_back(to);
    return;
  }
  const bool called = copies > 1 && analysis_.cost(item) > 1 && analysis_.cost(item) * copies > kCopiesMax;
  const RuleIndex rule = called ? index_of_(item) : 0;
  uint32_t at = node();
  if (ok()) nfa_.empty[from].push_back(at);
  for (uint32_t i = 0; i < copies && ok(); ++i) {
    if (i >= e.least) nfa_.empty[at].push_back(to);
    const uint32_t next = node();
    if (!ok()) return;
    if (called) {
      edge(at, {Label::Kind::kCall, rule, rule}, next);
    } else {
      add(item, at, next);
    }
    if (endless && i + 1 == copies) nfa_.empty[next].push_back(at);
    at = next;
  }
  if (ok()) nfa_.empty[at].push_back(to);
}

// Sequences share their tails, so that a class takes few nodes.
void NfaBuilder::add_set(const CodePointSet& set, uint32_t from, uint32_t to) {
  std::vector<ByteRanges> sequences;
  for (const CodePointRange& range : set.ranges()) utf8_sequences(range.first, range.last, sequences);
  std::map<ByteRanges, uint32_t> tails;  // what is left to take -> the node from which it is taken
  tails[{}] = to;
  for (const ByteRanges& sequence : sequences) {
    uint32_t target = to;
    for (size_t i = sequence.size(); i-- > 1 && ok();) {
      const ByteRanges rest(sequence.begin() + static_cast<ptrdiff_t>(i), sequence.end());
      const auto [it, is_new] = tails.try_emplace(rest, 0);
      if (is_new) {
        it->second = node();
        if (ok()) edge(it->second, {Label::Kind::kByte, sequence[i].first, sequence[i].last}, target);
      }
      target = it->second;
    }
    if (!ok()) return;
    edge(from, {Label::Kind::kByte, sequence[0].first, sequence[0].last}, target);
  }
}

void NfaBuilder::add_token(const Expr& e, uint32_t from, uint32_t to) {
  uint32_t id = e.value;
  if (e.kind == Kind::kTokenText) {
    const std::string& text = grammar_.texts[e.value];
    const auto found = token_id_(text);
    if (!found) {
      status_ = invalid_argument("the model's vocabulary has no token ", text);
      return;
    }
    id = static_cast<uint32_t>(*found);
  }
  if (id >= vocab_size_) {
    status_ = invalid_argument("token <[", id, "]> is outside the model's vocabulary of ", vocab_size_);
    return;
  }
  edge(from, {Label::Kind::kToken, id, id}, to);
}

StatusOr<std::vector<DfaNode>> determinise(const Nfa& nfa) {
  Subsets subsets(nfa);
  const size_t nodes_max = 2 * nfa.edges.size() + 256;
  // The sets' sizes count too: a set of n nodes takes n steps to leave, whatever it becomes.
  size_t members_left = 40 * nfa.edges.size() + 100'000;
  absl::flat_hash_map<NodeSet, uint32_t> ids;
  std::vector<NodeSet> sets;
  std::vector<DfaNode> out;
  const auto id_of = [&](NodeSet set) {
    const auto [it, is_new] = ids.try_emplace(set, static_cast<uint32_t>(sets.size()));
    if (is_new) {
      members_left -= std::min(members_left, set.size());
      sets.push_back(std::move(set));
    }
    return it->second;
  };
  id_of(subsets.closure({nfa.start}));
  for (uint32_t i = 0; i < sets.size(); ++i) {
    if (sets.size() > nodes_max || members_left == 0) return without_empty_edges(nfa);
    DfaNode node;
    const NodeSet set = sets[i];
    node.final = std::binary_search(set.begin(), set.end(), nfa.end);
    for (auto& [label, targets] : disjoint_edges(nfa, set)) {
      const uint32_t target = id_of(subsets.closure(targets));
      Nfa::Edge* last = node.edges.empty() ? nullptr : &node.edges.back();
      const bool joins = last != nullptr && label.kind == Label::Kind::kByte && last->label.kind == Label::Kind::kByte &&
                         last->target == target && last->label.last + 1 == label.first;
      if (joins) {
        last->label.last = label.last;
      } else {
        node.edges.push_back({label, target});
      }
    }
    out.push_back(std::move(node));
  }
  return out;
}

}  // namespace shoal::grammar
