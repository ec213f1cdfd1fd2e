// Of the sequences that run, those that cannot be on time any more are passed over while others can: they keep their blocks.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "engine/sequence.h"
#include "policy/batch.h"

namespace shoal {

struct Prospects;

class PassingOver {
 public:
  // Of each so many steps one is for everybody.
  explicit PassingOver(uint32_t every) : every_(every) {}

  // Whether anybody is passed over at all: not while those who read can all be kept at their pace.
  void set(bool on) {
    on_ = on;
    if (!on) count_ = 0;
  }
  // Of so many that run, in the last step that passed over anybody.
  size_t count(size_t running) const { return std::min(count_, running); }
  bool in_step(uint64_t step) const { return on_ && step % every_ != 0; }
  // Marks those of `running`, in the order of `views`, who decode and are hopeless, and puts them behind the others; nobody, where a step
  // without them is hardly shorter.
  void mark(std::span<Sequence* const> running, std::vector<SequenceView>& views, const Prospects& expected, TimePoint now);

 private:
  const uint32_t every_;
  bool on_ = false;
  size_t count_ = 0;
};

}  // namespace shoal
