#include "engine/fair_queue.h"

#include <algorithm>
#include <limits>

#include "base/check.h"

namespace shoal {
namespace {

constexpr double kAnswerWeight = 2;  // of a token of an answer beside one of a prompt, as the publication has it

}  // namespace

double FairQueue::cost(const Sequence& s, double answer_tokens, uint32_t weight) {
  return (s.prompt_length() + kAnswerWeight * std::min(answer_tokens, static_cast<double>(s.request->max_tokens))) / weight;
}

void FairQueue::add(Sequence& s) {
  Account& payer = payers_[s.request->payer.number];
  payer.weight = s.request->payer.weight;
  if (payer.waiting.empty()) payer.served = std::max(payer.served, floor_);
  CHECK(payer.waiting.emplace(key(s, false), &s).second);
  ++size_;
  raise_floor();
}

bool FairQueue::remove(const Sequence& s) {
  const auto payer = payers_.find(s.request->payer.number);
  if (payer == payers_.end() || payer->second.waiting.erase(key(s, false)) + payer->second.waiting.erase(key(s, true)) == 0) return false;
  --size_;
  raise_floor();
  return true;
}

void FairQueue::begun(const Sequence& s, double answer_tokens) {
  if (s.admitted_before) return;
  const auto [at, fresh] = payers_.try_emplace(s.request->payer.number);
  Account& payer = at->second;
  if (fresh) payer.weight = s.request->payer.weight;
  payer.served = std::max(payer.served, floor_) + cost(s, answer_tokens, payer.weight);
  raise_floor();
}

// Who has nothing that waits and no more than the floor is as one who was never there.
void FairQueue::raise_floor() {
  double least = 0;
  bool any = false;
  for (const auto& [id, payer] : payers_) {
    if (payer.waiting.empty()) continue;
    least = any ? std::min(least, payer.served) : payer.served;
    any = true;
  }
  if (any) floor_ = std::max(floor_, least);
  std::erase_if(payers_, [this](const auto& p) { return p.second.waiting.empty() && p.second.served <= floor_; });
}

std::vector<Sequence*> FairQueue::first(size_t most, double answer_tokens) const {
  struct Front {
    double served;
    uint32_t weight;
    std::map<Key, Sequence*>::const_iterator next, end;
    auto rank() const { return std::tuple(!next->second->admitted_before, served, next->second->order); }
  };
  std::vector<Front> fronts;
  for (const auto& [id, payer] : payers_) {
    if (!payer.waiting.empty()) fronts.push_back({payer.served, payer.weight, payer.waiting.begin(), payer.waiting.end()});
  }
  const auto later = [](const Front& a, const Front& b) { return a.rank() > b.rank(); };
  std::make_heap(fronts.begin(), fronts.end(), later);
  std::vector<Sequence*> out;
  while (!fronts.empty() && out.size() < most) {
    std::pop_heap(fronts.begin(), fronts.end(), later);
    Front& front = fronts.back();
    Sequence* const s = front.next->second;
    out.push_back(s);
    if (!s->admitted_before) front.served += cost(*s, answer_tokens, front.weight);
    if (++front.next == front.end) fronts.pop_back();
    else std::push_heap(fronts.begin(), fronts.end(), later);
  }
  return out;
}

std::vector<Sequence*> FairQueue::sort_out(size_t most, const std::function<Chance(const Sequence&)>& chance) {
  const auto payers = std::count_if(payers_.begin(), payers_.end(), [](const auto& p) { return !p.second.waiting.empty(); });
  const size_t each = std::max<size_t>(1, most / std::max<size_t>(1, static_cast<size_t>(payers)));
  std::vector<Sequence*> out;
  for (auto& [id, payer] : payers_) {
    auto& waiting = payer.waiting;
    Key last{};
    size_t stay = 0;  // of the equals of the last one
    for (auto at = waiting.begin(); at != waiting.end();) {
      const auto [priority, behind, order] = at->first;
      if (std::get<0>(last) != priority || std::get<1>(last) != behind) stay = 0;
      last = at->first;
      Sequence& s = *at->second;
      const Chance has = chance(s);
      if (has == Chance::kWhole || (has == Chance::kPart && behind)) {
        at = ++stay < each ? std::next(at) : waiting.upper_bound({priority, behind, std::numeric_limits<uint64_t>::max()});
        continue;
      }
      at = waiting.erase(at);
      if (has == Chance::kNone) out.push_back(&s), --size_;
      else waiting.emplace(key(s, true), &s);
    }
  }
  raise_floor();
  return out;
}

void FairQueue::restore_order() {
  for (auto& [id, payer] : payers_) {
    std::map<Key, Sequence*> waiting;
    for (const auto& [at, s] : payer.waiting) waiting.emplace(key(*s, false), s);
    payer.waiting = std::move(waiting);
  }
}

size_t FairQueue::of(const Payer& payer) const {
  const auto found = payers_.find(payer.number);
  return found == payers_.end() ? 0 : found->second.waiting.size();
}

size_t FairQueue::ahead_of(const Payer& payer) const {
  const size_t own = of(payer);
  size_t ahead = own;
  for (const auto& [id, other] : payers_) {
    if (id != payer.number) ahead += std::min(other.waiting.size(), ((own + 1) * other.weight + payer.weight - 1) / payer.weight);
  }
  return ahead;
}

void FairQueue::check() const {
  size_t size = 0;
  for (const auto& [id, payer] : payers_) {
    CHECK(!payer.waiting.empty() || payer.served > floor_);
    CHECK(payer.waiting.empty() || payer.served >= floor_);
    size += payer.waiting.size();
    for (const auto& [at, s] : payer.waiting) CHECK((at == key(*s, false) || at == key(*s, true)) && s->request->payer.number == id);
  }
  CHECK_EQ(size, size_);
}

}  // namespace shoal
