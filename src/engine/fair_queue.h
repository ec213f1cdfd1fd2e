// Sequences that wait, by whose they are: everybody who pays gets a share of what is computed while all of them wait, by his weight and
// however much he asks for.
//
// Virtual token counters (Sheng et al., OSDI'24, "Fairness in Serving Large Language Models"): each payer has a counter of what was
// begun for it, tokens of prompts once and tokens of answers twice, over his weight, and the one that waits with the least counter is next. Who comes
// when nothing of his waits starts where the least of the others is: nobody saves up. What is expected of an answer is charged when
// it begins, so that one who asks for much at once does not fill a batch before his counter shows it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <tuple>
#include <vector>

#include "engine/sequence.h"
#include "policy/cohorts.h"

namespace shoal {

class FairQueue {
 public:
  // Behind its payer's others of its priority that came before. REQUIRES: not in it.
  void add(Sequence& s);
  bool remove(const Sequence& s);  // false: it was not there
  // It begins, and answers with so many tokens as far as that can be known. Charged once in its life: not when it was preempted.
  // REQUIRES: it has just been removed.
  void begun(const Sequence& s, double answer_tokens);

  // The first `most` in the order in which they would begin. Of one payer those of higher priority, then those that came first;
  // one that had begun before goes before what others have not begun. With one payer there is nothing to share.
  std::vector<Sequence*> first(size_t most, double answer_tokens) const;
  // Payer by payer: takes out who has no chance, and puts who has part of one behind the others of his priority. Of equals only the first
  // ones are looked at, until so many stay as is his share of `most` among those who wait, at least one: those behind them came later, and
  // nobody's chances become better; but shorter answers have a chance for longer, and say nothing of a longer one behind them.
  std::vector<Sequence*> sort_out(size_t most, const std::function<Chance(const Sequence&)>& chance);
  // Who was put behind stands where it came again.
  void restore_order();

  // visit(sequence, number of those like it): payer by payer and in order, one of so many that there are `most` at most. REQUIRES:
  // most > 0.
  template <typename Visit>
  void for_each_kind(size_t most, Visit visit) const {
    const size_t alike = (size_ + most - 1) / most;
    size_t at = 0;
    for (const auto& [id, payer] : payers_) {
      for (const auto& [key, s] : payer.waiting) {
        const size_t in_group = at % alike, group = std::min(alike, size_ - at + in_group);
        if (in_group == group / 2) visit(*s, group);  // the one in their middle
        ++at;
      }
    }
  }

  size_t size() const { return size_; }
  size_t of(const Payer& payer) const;
  // About how many begin before one more of this payer.
  size_t ahead_of(const Payer& payer) const;
  void check() const;

 private:
  using Key = std::tuple<int64_t, bool, uint64_t>;  // (-priority, put behind, order)
  struct Account {
    std::map<Key, Sequence*> waiting;
    double served = 0;    // tokens, over the weight
    uint32_t weight = 1;  // as the last request had it
  };
  static Key key(const Sequence& s, bool behind) { return {-int64_t{s.request->priority}, behind, s.order}; }
  static double cost(const Sequence& s, double answer_tokens, uint32_t weight);
  void raise_floor();

  std::map<uint32_t, Account> payers_;  // who waits, or was served more than the floor
  double floor_ = 0;                  // the least counter of those who wait, or of those who waited last
  size_t size_ = 0;
};

}  // namespace shoal
