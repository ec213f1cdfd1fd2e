#include "roles/served_set.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace shoal {
namespace {

constexpr Duration kInterval = std::chrono::milliseconds(250);
constexpr size_t kRehearsedMax = 16;
constexpr uint64_t kMany = 33;           // sequences of a step that is compared with one of a single one
constexpr double kCoursesAhead = 120;    // so many rehearsals within the time that one looks ahead: what they tell changes no faster
constexpr double kHere = 1.2;            // what being there is worth in the order
constexpr double kStaySwitches = 1;      // of one that was in the dark, once it has come,
constexpr double kStaySecondsMin = 0.5;
constexpr double kOthers = 39;           // and the others have so much longer than its visit takes,
constexpr double kOthersIdle = 19;       // or than it took, while they have nothing to do
constexpr double kDarkUnsaid = 6;        // where nobody said by when, in switches, if that is more than dark_max,
constexpr double kStayUnsaid = 3, kStayUnsaidMax = 8;
constexpr double kOthersUnsaid = 0.5;    // fairness is worth more there
constexpr double kTurnUnsaid = 2;        // where nobody at all did, switches that a turn is long at least
constexpr double kMostAgain = 0.5;       // and where most did not, models by which those that did are more before that changes
constexpr double kUsualVisit = 1.5;      // seconds, of which dark_max is
constexpr double kQuietMost = 10;        // seconds for which an idle device waits for those who come usually
constexpr double kLongestAim = 86400;    // seconds
constexpr double kPatience = 3;          // with one that does not come, in visits

// That a sequence of this model has in the mean.
uint64_t context_tokens(const HostedModel& hosted, double answer_tokens) { return static_cast<uint64_t>(hosted.prompt_tokens.value + answer_tokens / 2); }

bool said(const HostedModel& hosted) { return hosted.facts.pooling.ttft_loads == 0; }  // by when its first tokens are due

double stay_for(double switch_seconds) { return std::max(kStaySecondsMin, kStaySwitches * switch_seconds); }
double visit_for(double switch_seconds) { return stay_for(switch_seconds) + 2 * switch_seconds; }  // there and back
double dark_for(const TurnOptions& turns, double switch_seconds) {
  return to_seconds(turns.dark_max) * std::max(1.0, visit_for(switch_seconds) / kUsualVisit);
}

}  // namespace

double dark_seconds_most(const TurnOptions& turns, uint32_t away, double switch_seconds) {
  return dark_for(turns, switch_seconds) + away * (1 + kOthers) * visit_for(switch_seconds);
}

double ServedSet::switch_to(const HostedModel& hosted) const {
  return loads_.switch_seconds(hosted.costs, hosted.facts.weight_bytes, catalogue_.copied_share(hosted));
}

// Of its weights, what a switch to one that has been here copies, about: as if all models of the node went round, what the device has no
// room for.
double ServedSet::returning_share() const {
  if (!config_.adopt_weights) return 1;
  const PagePool& pages = catalogue_.pages();
  const auto all = static_cast<double>(catalogue_.residency().weight_pages_of_all()), here = static_cast<double>(catalogue_.residency().pages_held());
  const double kv = std::max(0.0, pages.capacity() - pages.free() - here), room = pages.capacity() + pages.spare() - kv;
  return std::clamp((all - room) / std::max(all - here, 1.0), 0.0, 1.0);
}

// Of loads as they were of late: the weights may be there in part, or all.
SloTarget ServedSet::slo(const HostedModel& hosted) const {
  SloTarget slo = hosted.facts.pooling.slo;
  if (const int32_t loads = hosted.facts.pooling.ttft_loads; loads > 0) {
    const double copied = hosted.copied.count > 0 ? hosted.copied.value : 1;
    const double seconds = loads * slower_ * loads_.switch_seconds(hosted.costs, hosted.facts.weight_bytes, copied);
    slo.ttft = std::max(slo.ttft, from_seconds(std::min(seconds, kLongestAim)));
  }
  return slo;
}

Prospects ServedSet::prospects(const HostedModel& hosted) const {
  Prospects p;
  p.slo = slo(hosted);
  p.fair = fair_;
  const size_t running = hosted.engine->running();
  const uint64_t sequences = running - hosted.engine->line().passing_over().count(running) + 1;
  p.step_seconds = hosted.costs.decode_seconds(sequences, sequences * static_cast<uint64_t>(hosted.prompt_tokens.value));
  p.pace_seconds = hosted.pace.seconds();
  p.prompts = hosted.costs.prompt_cost(config_.limits.tokens_per_step);
  p.answer_tokens = catalogue_.likeness().answer_tokens(hosted);
  p.filled = catalogue_.likeness().filled(hosted);
  p.filled_tokens = catalogue_.likeness().filled_tokens(hosted);
  const uint64_t context = context_tokens(hosted, p.answer_tokens);
  p.token_seconds = std::max(0.0, hosted.costs.decode_seconds(kMany, kMany * context) - hosted.costs.decode_seconds(1, context)) / (kMany - 1);
  return p;
}

void ServedSet::note_said(TimePoint now) {
  std::optional<int32_t> priority;
  uint64_t last_step = 0;
  bool unlike = false;
  said_ = unsaid_ = 0;
  for (const auto& [id, hosted] : catalogue_.active()) {
    const PoolingSettings& pooling = hosted.facts.pooling;
    if (hosted.last_turn >= last_step) last_step = hosted.last_turn, said_next_ = !said(hosted);
    if (!hosted.engine->has_work()) continue;
    ++(said(hosted) ? said_ : unsaid_);
    unlike |= pooling.priority != std::exchange(priority, pooling.priority).value_or(pooling.priority);
  }
  const double passed = to_seconds(now - std::exchange(noted_, now)), more = static_cast<double>(unsaid_) - static_cast<double>(said_);
  most_ += (more - most_) * (1 - std::exp(-passed / std::max(to_seconds(config_.turns.dark_max), 1.0)));
  const bool most = said_ == 0 || most_ > (fair_ ? -kMostAgain : 0);
  fair_ = config_.turns.narrow && unsaid_ > 0 && most && !unlike;
}

bool ServedSet::keeps_promise(const HostedModel& hosted, Duration slack) const {
  return fair_ && said_next_ && said(hosted) && to_seconds(slack) >= switch_to(hosted);
}

void ServedSet::update(bool contended, TimePoint now) {
  if (now >= next_expected_) {
    catalogue_.likeness().expect_answers(catalogue_.active());
    next_expected_ = now + kInterval;
  }
  note_load(now);
  if (!config_.turns.narrow) return;
  note_dark(now);
  note_idle(now);
  if (!contended || stuck()) {
    late_first(false);
    if (course_ != Course{}) serve_all();
    course_ = {};
    next_ = now;
    return;
  }
  if (now < next_) return;
  next_ = now + kInterval;
  for (auto& [id, hosted] : catalogue_.active()) catalogue_.likeness().believe_costs(hosted);
  update_visits(now);
  const double ahead = horizon();
  std::vector<RehearsedModel> models = models_in_order(ahead, now);
  // Of many the first ones tell what is best for all.
  const std::span<RehearsedModel> rehearsed(models.data(), std::min(models.size(), kRehearsedMax));
  if (course_.served == 0 || now >= next_course_) {
    course_ = fair_ ? Course{UINT32_MAX, 1, !keeps_everybody(rehearsed, device(models), ahead, {})} : best_course(rehearsed, device(models), ahead, course_, {});
    next_course_ = now + std::max(kInterval, from_seconds(ahead / kCoursesAhead));
  }
  if (fair_) return take_turns();
  if (course_.here) put_here_first(rehearsed);
  if (course_.served == rehearsed.size()) course_.served = UINT32_MAX;  // whoever comes, too
  const bool nobody = idle_since_ != kForever;
  if (nobody) let_in(now);
  for (uint32_t i = 0; i < models.size(); ++i) {
    HostedModel& hosted = catalogue_.at(models[i].model);
    const bool chosen = i < course_.served && (models[i].resident || hosted.facts.model == favoured() || worth_a_switch(models[i]));
    const bool comes = let_in_ && let_in_->model == hosted.facts.model && !models[i].resident;
    hosted.served = chosen || comes || (nobody && idle_long_enough(models, i));
    hosted.turn.stretch = course_.stretch;
    hosted.turn.ends = course_.ends;
    hosted.turn.ends_by = Turn::kUnlimited;
  }
}

void ServedSet::serve_all() {
  for (auto& [id, hosted] : catalogue_.active()) hosted.served = true, hosted.turn.stretch = 1, hosted.turn.ends = false;
}

void ServedSet::take_turns() {
  serve_all();
  if (!course_.ends) return;
  const auto& active = catalogue_.active();
  const auto with_work = std::count_if(active.begin(), active.end(), [](const auto& m) { return m.second.engine->has_work(); });
  for (auto& [id, hosted] : catalogue_.active()) {
    const double switching = switch_to(hosted);
    hosted.turn.ends = true;
    hosted.turn.stretch = std::max(1.0, kTurnUnsaid * switching / std::max(quota(hosted), 1e-3));
    hosted.turn.ends_by = std::max(to_seconds(config_.turns.dark_max) / static_cast<double>(std::max<ptrdiff_t>(with_work, 1)), kStayUnsaidMax * switching);
  }
}

double ServedSet::quota(const HostedModel& hosted) const {
  const double planned = hosted.turn.planned_seconds;
  return planned > 0 && planned < Turn::kUnlimited ? planned : 2 * switch_to(hosted);
}

// Those on the device have work and can do none of it.
bool ServedSet::stuck() const {
  bool work = false;
  for (const auto& [id, hosted] : catalogue_.active()) {
    if (catalogue_.away(hosted)) continue;
    if (!catalogue_.resident(hosted)) return false;
    work |= hosted.engine->has_work();
    if (hosted.engine->runnable() && hosted.stalled_since == kForever && hosted.deferrals == 0) return false;
  }
  return work;
}

// Nobody who is on the device has work.
bool ServedSet::idle() const {
  return !catalogue_.any_active([this](const HostedModel& m) { return !catalogue_.away(m) && m.engine->has_work(); });
}

// What comes too late for a model is served while nobody is on the device who has work, if that pays.
bool ServedSet::idle_long_enough(const std::vector<RehearsedModel>& models, size_t which) const {
  const RehearsedModel& late = models[which];
  const Engine& engine = *catalogue_.at(late.model).engine;
  const RehearsedModel* leaves = nullptr;
  const auto used = [this](const RehearsedModel& m) { return catalogue_.residency().last_used(m.model); };
  for (const RehearsedModel& m : models) {
    if (m.resident && !m.stays && (leaves == nullptr || used(m) < used(*leaves))) leaves = &m;
  }
  if (leaves == nullptr) return false;
  return pays_while_idle(late, static_cast<double>(engine.waiting() + engine.running()), *leaves, std::span(models.data(), std::min(models.size(), kRehearsedMax)));
}

void ServedSet::note_load(TimePoint now) {
  slower_ = 1;
  const LoadDesk::Loading* const load = loads_.loading();
  if (load == nullptr) return;
  const HostedModel& hosted = catalogue_.at(load->model);
  const double expected = loads_.switch_seconds(hosted.costs, hosted.facts.weight_bytes, load->copied);
  slower_ = std::max(1.0, to_seconds(now - loads_.began()) / std::max(expected, 1e-3));
}

void ServedSet::note_dark(TimePoint now) {
  for (auto& [id, hosted] : catalogue_.active()) {
    const bool dark = hosted.engine->has_work() && (catalogue_.away(hosted) || !hosted.served);
    if (!dark) hosted.dark_since = kForever;
    if (dark && hosted.dark_since == kForever) hosted.dark_since = now;
  }
}

void ServedSet::note_idle(TimePoint now) {
  idle_since_ = !idle() ? kForever : std::min(idle_since_, now);
  const HostedModel* guest = let_in_ ? catalogue_.find(let_in_->model) : nullptr;
  const bool turned_away = guest != nullptr && idle_since_ == kForever && catalogue_.away(*guest);  // by those who have work
  if (guest == nullptr || !guest->engine->has_work() || turned_away) let_in_.reset();
}

void ServedSet::came(const HostedModel& hosted, TimePoint now) {
  const ModelId id = hosted.facts.model;
  const bool made_room = let_in_ && std::find(let_in_->hosts.begin(), let_in_->hosts.end(), id) != let_in_->hosts.end();
  if (catalogue_.away(hosted) && !made_room) return;
  if (catalogue_.any_active([id](const HostedModel& m) { return m.facts.model != id && m.dark_since != kForever; })) came_meanwhile_ = now;
}

void ServedSet::let_in(TimePoint now) {
  if (let_in_ || (came_meanwhile_ && now - *came_meanwhile_ < 2 * config_.turns.dark_max)) return;
  const HostedModel* const first = longest_dark([this](const HostedModel& m) { return catalogue_.away(m); });
  if (first == nullptr || to_seconds(now - idle_since_) < std::min(visit_for(switch_to(*first)), kQuietMost)) return;
  let_in_ = {first->facts.model, those_here()};
}

template <typename Whether>
const HostedModel* ServedSet::longest_dark(Whether&& whether) const {
  const HostedModel* first = nullptr;
  for (const auto& [id, hosted] : catalogue_.active()) {
    if (hosted.dark_since == kForever || (first != nullptr && hosted.dark_since >= first->dark_since)) continue;
    if (whether(hosted)) first = &hosted;
  }
  return first;
}

std::vector<ModelId> ServedSet::those_here() const {
  std::vector<ModelId> here;
  for (const auto& [id, hosted] : catalogue_.active()) {
    if (!catalogue_.away(hosted)) here.push_back(id);
  }
  return here;
}

ServedSet::VisitTerms ServedSet::visit_of(const HostedModel& hosted) const {
  const double switching = switch_to(hosted), dark_max = to_seconds(config_.turns.dark_max);
  const double dark = dark_for(config_.turns, switching), stay = stay_for(switching);
  if (said(hosted)) return {false, switching, dark, stay, stay, kOthers, kOthersIdle};
  const double others = std::max(kOthersUnsaid, static_cast<double>(said_) / static_cast<double>(std::max<size_t>(unsaid_, 1)));
  return {true, switching, std::max(dark_max, kDarkUnsaid * switching), kStayUnsaid * switching, std::max(dark_max, kStayUnsaidMax * switching), others, others};
}

void ServedSet::late_first(bool visited) {
  const HostedModel* const hosted = favoured_ ? catalogue_.find(favoured_->model) : nullptr;
  if (hosted != nullptr) hosted->engine->line().late_first(visited && favoured_->terms.unsaid);
}

void ServedSet::update_visits(TimePoint now) {
  if (!fair_) {
    favour(now);
    return late_first(true);
  }
  late_first(false);
  favoured_.reset(), hosts_.reset(), let_in_.reset();
}

void ServedSet::favour(TimePoint now) {
  if (favoured_) {
    const HostedModel* hosted = catalogue_.find(favoured_->model);
    const VisitTerms& visit = favoured_->terms;
    if (favoured_->here == kForever && hosted != nullptr && catalogue_.resident(*hosted)) favoured_->here = now;
    const double taken = to_seconds(now - favoured_->since) + visit.switch_seconds;  // and back to whoever made room for it
    const double here = favoured_->here == kForever ? 0 : to_seconds(now - favoured_->here);
    const bool ends = hosted == nullptr || !hosted->engine->has_work() || here >= visit.stay_seconds_max ||
                      (here > 0 && here >= visit.stay_seconds && !hosted->engine->has_work(favoured_->since));
    if (ends || taken >= kPatience * visit.seconds_max()) {
      NextVisit& next = next_visits_[visit.unsaid];
      next.idle = std::min(next.busy, now + from_seconds(visit.others_idle * taken));
      if (visit.unsaid) next.busy = hosts_until_ = next.idle;
      late_first(false);
      favoured_.reset();
    }
  }
  if (hosts_ && !favoured_ && (now >= hosts_until_ || hosts_are_back())) hosts_.reset();
  if (favoured_) return;
  const HostedModel* const first = longest_dark_too_long(now);
  if (first == nullptr) return;
  const VisitTerms visit = visit_of(*first);
  favoured_ = {first->facts.model, now, kForever, visit};
  hosts_until_ = next_visits_[visit.unsaid].busy = now + from_seconds((1 + visit.others) * visit.seconds_max());
  if (catalogue_.away(*first) && !hosts_) hosts_ = those_here();
}

const HostedModel* ServedSet::longest_dark_too_long(TimePoint now) const {
  const HostedModel* first = nullptr;
  for (const bool unsaid : {false, true}) {
    const NextVisit& next = next_visits_[unsaid];
    if (now < (idle_since_ != kForever ? next.idle : next.busy)) continue;
    const HostedModel* const longest = longest_dark([unsaid](const HostedModel& m) { return said(m) != unsaid; });
    if (longest == nullptr || (first != nullptr && first->dark_since <= longest->dark_since)) continue;
    const Duration most = std::min(from_seconds(std::min(visit_of(*longest).dark_seconds, 1e9)), longest->facts.pooling.max_wait / 2);
    if (now - longest->dark_since >= most) first = longest;
  }
  return first;
}

bool ServedSet::hosts_are_back() const {
  return std::none_of(hosts_->begin(), hosts_->end(), [this](ModelId id) {
    const HostedModel* host = catalogue_.find(id);
    return host != nullptr && host->engine->has_work() && catalogue_.away(*host);
  });
}

bool ServedSet::at_home(const HostedModel& hosted) const {
  return hosts_ ? std::find(hosts_->begin(), hosts_->end(), hosted.facts.model) != hosts_->end() : !catalogue_.away(hosted);
}

RehearsedModel ServedSet::rehearsed(const HostedModel& hosted, double returning_share, TimePoint now) const {
  const Engine& engine = *hosted.engine;
  const Prospects expected = prospects(hosted);
  const uint64_t context = context_tokens(hosted, expected.answer_tokens);
  RehearsedModel m;
  m.model = hosted.facts.model;
  m.resident = !catalogue_.away(hosted);
  m.here = at_home(hosted);
  m.stays = hosted.pinned;
  m.switch_seconds = switch_to(hosted);
  m.return_seconds = hosted.loads > 0 ? m.switch_seconds : loads_.switch_seconds(hosted.costs, hosted.facts.weight_bytes, returning_share);
  m.step_each = expected.token_seconds;
  m.step_base = hosted.costs.decode_seconds(1, context) - m.step_each;
  m.ttft = to_seconds(expected.slo.ttft);
  m.tbt = to_seconds(expected.slo.tbt);
  const bool behind = !fair_ && said_ > 0 && !said(hosted);
  m.weight = priority_weight(hosted.facts.pooling.priority) * (behind ? priority_weight(-1) : 1);
  m.arrivals = hosted.arrivals.per_second(now);
  m.prompt_seconds = expected.prompts.seconds(0, static_cast<uint64_t>(hosted.prompt_tokens.value));
  m.answer_tokens = expected.answer_tokens;
  m.weight_pages = catalogue_.weight_pages(hosted);
  m.kv_pages_min = hosted.kv_pages;
  m.kv_pages = static_cast<double>(blocks_for(context + 1)) * static_cast<double>(hosted.facts.kv_block_bytes) / kPageBytes;
  m.again_seconds = expected.prompts.seconds(0, context);
  const double pages = std::max(0.0, catalogue_.pages().capacity() - m.weight_pages);
  m.sequences_max = std::clamp(pages / std::max(m.kv_pages, 1e-6), 1.0, static_cast<double>(config_.limits.sequences_max));
  m.quota_seconds = quota(hosted);
  m.spent_seconds = hosted.turn.spent_seconds;
  m.pace_seconds = expected.pace_seconds;
  m.passed_over = static_cast<double>(hosted.engine->line().passing_over().count(engine.running()));
  m.cohorts = engine.cohorts(now);
  return m;
}

std::vector<RehearsedModel> ServedSet::models_in_order(double horizon, TimePoint now) const {
  std::vector<std::pair<double, RehearsedModel>> all;
  const double returning = returning_share();
  for (const auto& [id, hosted] : catalogue_.active()) {
    if (!hosted.engine->has_work() && catalogue_.away(hosted)) continue;
    RehearsedModel m = rehearsed(hosted, returning, now);
    const double worth = yield(m, horizon) * (m.here && (hosted.served || !m.resident) ? kHere : 1);
    m.first = id == favoured();
    all.emplace_back(m.first || m.stays ? std::numeric_limits<double>::infinity() : worth, std::move(m));
  }
  std::stable_sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
  std::vector<RehearsedModel> models;
  models.reserve(all.size());
  for (auto& [worth, m] : all) models.push_back(std::move(m));
  return models;
}

// Room for the first ones whose weights fit, with KV for one answer of any length.
RehearsedDevice ServedSet::device(const std::vector<RehearsedModel>& models) const {
  uint64_t weights = 0, kv = 0;
  uint32_t count = 0;
  for (const RehearsedModel& m : models) {
    const HostedModel& hosted = catalogue_.at(m.model);
    weights += catalogue_.weight_pages(hosted);
    kv = std::max<uint64_t>(kv, hosted.kv_pages);
    if (weights + kv > catalogue_.pages().capacity()) break;
    ++count;
  }
  return {std::max(count, 1u), static_cast<double>(catalogue_.pages().capacity()), static_cast<double>(catalogue_.host_tier().pages()), static_cast<uint32_t>(catalogue_.all().size())};
}

// Long enough for what the first token may take, for what an answer takes, and for a switch to earn its cost.
double ServedSet::horizon() const {
  double seconds = 5;
  for (const auto& [id, hosted] : catalogue_.active()) {
    if (!hosted.engine->has_work()) continue;
    const Prospects expected = prospects(hosted);
    const double answer = expected.answer_tokens * to_seconds(expected.slo.tbt);
    seconds = std::max({seconds, 2 * to_seconds(expected.slo.ttft), 16 * switch_to(hosted), 0.5 * answer});
  }
  return std::min(seconds, 120.0);
}

}  // namespace shoal
