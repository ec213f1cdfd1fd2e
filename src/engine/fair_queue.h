// Sequences that wait, by whose they are: everybody who pays gets a share of what is computed while all of them wait, by his weight and
// however much he asks for.
//
// Virtual token counters (Sheng et al., OSDI'24, "Fairness in Serving Large Language Models"): each payer has a counter of what was
// begun for it, tokens of prompts once and tokens of answers twice, over his weight, and the one that waits with the least counter is next. Who comes
// when nothing of his waits starts where the least of the others is: nobody saves up. What is expected of an answer is charged when
// it begins, so that one who asks for much at once does not fill a batch before his counter shows it.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <utility>
#include <vector>

#include "engine/sequence.h"

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
  // Takes out, payer by payer, those at the front for which `gone` is true.
  std::vector<Sequence*> take_front_while(const std::function<bool(const Sequence&)>& gone);

  size_t size() const { return size_; }
  size_t of(const Payer& payer) const;
  // About how many begin before one more of this payer.
  size_t ahead_of(const Payer& payer) const;
  void check() const;

 private:
  using Key = std::pair<int64_t, uint64_t>;  // (-priority, order)
  struct Account {
    std::map<Key, Sequence*> waiting;
    double served = 0;    // tokens, over the weight
    uint32_t weight = 1;  // as the last request had it
  };
  static Key key(const Sequence& s) { return {-int64_t{s.request->priority}, s.order}; }
  static double cost(const Sequence& s, double answer_tokens, uint32_t weight);
  void raise_floor();

  std::map<uint32_t, Account> payers_;  // who waits, or was served more than the floor
  double floor_ = 0;                  // the least counter of those who wait, or of those who waited last
  size_t size_ = 0;
};

}  // namespace shoal
