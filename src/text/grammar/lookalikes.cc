#include "text/grammar/lookalikes.h"

#include <algorithm>

#include "absl/container/flat_hash_map.h"
#include "absl/hash/hash.h"

namespace shoal::grammar {
namespace {

using Signature = std::vector<uint32_t>;
constexpr size_t kLooksPerNode = 8;

class Refinement {
 public:
  explicit Refinement(const Automaton& automaton) : automaton_(automaton), class_(automaton.nodes.size(), 0), callers_(automaton.nodes.size()) {
    for (NodeIndex n = 0; n < class_.size(); ++n) {
      const Automaton::Node& node = automaton_.nodes[n];
      for (const auto& e : automaton_.bytes(node)) callers_[e.target].push_back(n);
      for (const auto& e : automaton_.calls(node)) callers_[e.target].push_back(n);
      for (const auto& e : automaton_.tokens(node)) callers_[e.target].push_back(n);
    }
  }

  // Round 0 looks at the node alone, every further one an edge further.
  std::vector<NodeIndex> run(size_t rounds) {
    std::vector<NodeIndex> all(class_.size());
    for (NodeIndex n = 0; n < all.size(); ++n) all[n] = n;
    members_ = {all.size()};
    std::vector<NodeIndex> changed = split(all);
    size_t looks_left = kLooksPerNode * all.size() + 10'000;
    for (size_t round = 0; round <= rounds && !changed.empty(); ++round) {
      std::vector<NodeIndex> affected;
      for (const NodeIndex n : changed) affected.insert(affected.end(), callers_[n].begin(), callers_[n].end());
      std::sort(affected.begin(), affected.end());
      affected.erase(std::unique(affected.begin(), affected.end()), affected.end());
      if (affected.size() > looks_left) return all;  // too tangled to be worth it: each node resembles itself only
      looks_left -= affected.size();
      changed = split(affected);
    }
    absl::flat_hash_map<uint32_t, NodeIndex> first;
    for (NodeIndex n = 0; n < class_.size(); ++n) all[n] = first.try_emplace(class_[n], n).first->second;
    return all;
  }

 private:
  // A rule that may be empty takes an edge but no byte, so whoever calls one resembles itself only.
  bool calls_nullable(const Automaton::Node& node) const {
    const auto calls = automaton_.calls(node);
    return std::any_of(calls.begin(), calls.end(), [this](const Automaton::Call& c) { return may_be_empty(c.start); });
  }
  bool may_be_empty(NodeIndex start) const { return automaton_.nodes[start].final || automaton_.calls(automaton_.nodes[start]).size() > 0; }

  Signature signature(NodeIndex n) const {
    const Automaton::Node& node = automaton_.nodes[n];
    Signature out = {class_[n], node.final, calls_nullable(node) ? n + 1 : 0};
    for (const auto& e : automaton_.bytes(node)) out.insert(out.end(), {e.first, e.last, class_[e.target]});
    out.push_back(UINT32_MAX);
    for (const auto& e : automaton_.calls(node)) out.insert(out.end(), {e.start, class_[e.target]});
    out.push_back(UINT32_MAX);
    for (const auto& e : automaton_.tokens(node)) out.insert(out.end(), {static_cast<uint32_t>(e.token), class_[e.target]});
    return out;
  }

  // Gives new classes to those of `nodes`, ascending and distinct, that differ from the rest of their class. The largest
  // part keeps its class where all of a class is looked at, so that few nodes change. Returns those that changed.
  std::vector<NodeIndex> split(const std::vector<NodeIndex>& nodes) {
    absl::flat_hash_map<Signature, std::vector<NodeIndex>> parts;
    absl::flat_hash_map<uint32_t, size_t> looked_at;
    for (const NodeIndex n : nodes) {
      parts[signature(n)].push_back(n);
      ++looked_at[class_[n]];
    }
    absl::flat_hash_map<uint32_t, const std::vector<NodeIndex>*> keeps;  // the part of a class that stays
    for (const auto& [key, part] : parts) {
      if (looked_at[key[0]] < members_[key[0]]) continue;
      const std::vector<NodeIndex>*& best = keeps[key[0]];
      if (best == nullptr || part.size() > best->size() || (part.size() == best->size() && part[0] < (*best)[0])) best = &part;
    }
    std::vector<const std::vector<NodeIndex>*> leave;
    for (const auto& [key, part] : parts) {
      const auto kept = keeps.find(key[0]);
      if (kept == keeps.end() || kept->second != &part) leave.push_back(&part);
    }
    std::vector<NodeIndex> changed;
    for (const auto* part : leave) {
      members_[class_[(*part)[0]]] -= part->size();
      members_.push_back(part->size());
      for (const NodeIndex n : *part) class_[n] = static_cast<uint32_t>(members_.size() - 1);
      changed.insert(changed.end(), part->begin(), part->end());
    }
    return changed;
  }

  const Automaton& automaton_;
  std::vector<uint32_t> class_;                   // by node
  std::vector<size_t> members_;                   // by class
  std::vector<std::vector<NodeIndex>> callers_;   // the nodes with an edge to a node
};

}  // namespace

std::vector<NodeIndex> lookalikes(const Automaton& automaton, size_t bytes) { return Refinement(automaton).run(bytes); }

}  // namespace shoal::grammar
