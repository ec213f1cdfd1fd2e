// All models that a node ever served, in this process: what they were planned as, and what the grammars of their answers
// are made of. Changed by the node's loop thread.
#pragma once

#include <map>
#include <memory>
#include <utility>

#include "host/node_plan.h"
#include "runner/token_constraints.h"

namespace shoal {

class ServedModels {
 public:
  struct Entry {
    ServedModel model;
    NodeModel facts;
    std::unique_ptr<TokenConstraints> constraints;  // what it points at is used by the step thread only
  };

  void add(ServedModel model, const NodeModel& facts) {
    auto constraints = std::make_unique<TokenConstraints>(model.vocabulary);
    entries_.emplace(facts.model, Entry{std::move(model), facts, std::move(constraints)});
  }
  const Entry& at(ModelId id) const { return entries_.at(id); }  // REQUIRES: it was added

 private:
  std::map<ModelId, Entry> entries_;
};

}  // namespace shoal
