#include "policy/estimator.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>
#include <utility>

#include "base/check.h"
#include "base/json.h"
#include "nlohmann/json.hpp"

namespace shoal {
namespace {

constexpr double kGapSeconds = 120;   // after which a longest gap counts for a third
constexpr double kSilence = 2;        // times the longest gap says that there is less than before,
constexpr double kFewArrivals = 8;    // and more of them where few gaps are known
constexpr double kArrivalSeconds = 30, kArrivalSecondsMin = 3;
constexpr double kPaceSeconds = 1, kPaceTokens = 4;  // that a pace is the mean of, about, and that count of a while away at most
constexpr double kUsualGaps = 64;     // between two arrivals, that the usual one is the mean of,
constexpr double kGapsKnown = 16;     // and so many until it is known
constexpr double kUsualArrivals = 0.25;  // that are believed to have come in the time that so many usually take
constexpr double kForget = 0.995;        // per observation: about 200 of them count
constexpr double kRidge = 1e-5;          // pull towards the prior, as a share of what was seen
constexpr double kCorrectionRate = 0.2;
constexpr double kCopiedMin = 0.25;      // share of the weights from which on a switch tells what copying them takes
constexpr double kAdoptionSeconds = 1e-3;  // believed until a switch was seen that copied next to nothing
constexpr uint64_t kPromptsKnown = 64;   // steps with prompts, before they tell what decodes alone take
constexpr double kOutlier = 8;           // once there is a fit, one observation moves it no more than this factor

double dot(const StepFit::Terms& a, const StepFit::Terms& b) { return a[0] * b[0] + a[1] * b[1] + a[2] * b[2]; }

using Matrix = std::array<std::array<double, 3>, 3>;

// The least squares solution with only the terms of `mask`; false if the matrix is singular there.
bool solve(const Matrix& matrix, const StepFit::Terms& right, unsigned mask, StepFit::Terms& out) {
  Matrix a = matrix;
  StepFit::Terms b = right;
  for (size_t i = 0; i < 3; ++i) {
    if ((mask >> i & 1) != 0) continue;
    for (size_t j = 0; j < 3; ++j) a[i][j] = a[j][i] = 0;
    a[i][i] = 1;
    b[i] = 0;
  }
  for (size_t i = 0; i < 3; ++i) {  // positive definite: no pivoting
    if (a[i][i] <= 0) return false;
    for (size_t k = i + 1; k < 3; ++k) {
      const double factor = a[k][i] / a[i][i];
      for (size_t j = i; j < 3; ++j) a[k][j] -= factor * a[i][j];
      b[k] -= factor * b[i];
    }
  }
  for (size_t i = 3; i-- > 0;) {
    for (size_t j = i + 1; j < 3; ++j) b[i] -= a[i][j] * b[j];
    b[i] /= a[i][i];
  }
  out = b;
  return true;
}

}  // namespace

StepWork work_of(uint64_t begin, uint64_t end) {
  const uint64_t rows = end - begin;
  return {rows, rows * begin + rows * (rows + 1) / 2, rows == 1};
}

// The best solution, if it has no negative term; else the best without one is the best of the non-negative ones among the other
// choices of terms.
StepFit::Terms StepFit::solved() const {
  Matrix a = {{{squares_[0], squares_[1], squares_[2]},
               {squares_[1], squares_[3], squares_[4]},
               {squares_[2], squares_[4], squares_[5]}}};
  const double ridge = kRidge * (squares_[0] + squares_[3] + squares_[5]) + 1e-15;
  Terms right = products_;
  for (size_t i = 0; i < 3; ++i) {
    a[i][i] += ridge;
    right[i] += ridge * expected_[i];
  }
  Terms best;
  if (solve(a, right, 7, best) && *std::min_element(best.begin(), best.end()) >= 0) return best;
  best = {};
  double best_cost = std::numeric_limits<double>::infinity();
  for (unsigned mask = 1; mask < 7; ++mask) {
    Terms x;
    if (!solve(a, right, mask, x) || *std::min_element(x.begin(), x.end()) < 0) continue;
    Terms ax;
    for (size_t i = 0; i < 3; ++i) ax[i] = dot(a[i], x);
    const double cost = dot(x, ax) - 2 * dot(x, right);
    if (cost < best_cost) {
      best_cost = cost;
      best = x;
    }
  }
  return best;
}

void StepFit::observe(const StepWork& work, double seconds) {
  if (!std::isfinite(seconds) || seconds <= 0) return;
  if (observations_ == 0) correction_ = 1;
  if (observations_ >= 8) {
    const double expected = predict(work);
    seconds = std::clamp(seconds, expected / kOutlier, expected * kOutlier);
  }
  const Terms x = {prior_[0], prior_[1] * static_cast<double>(work.rows), prior_[2] * static_cast<double>(work.attended)};
  size_t k = 0;
  for (size_t i = 0; i < 3; ++i) {
    for (size_t j = i; j < 3; ++j, ++k) squares_[k] = kForget * squares_[k] + x[i] * x[j];
    products_[i] = kForget * products_[i] + x[i] * seconds;
  }
  coefficients_ = solved();
  const double fitted = dot(coefficients_, x);
  if (fitted > 0) correction_ += kCorrectionRate * (std::clamp(seconds / fitted, 0.1, 10.0) - correction_);
  ++observations_;
}

double StepFit::predict(const StepWork& work) const {
  const Terms x = {prior_[0], prior_[1] * static_cast<double>(work.rows), prior_[2] * static_cast<double>(work.attended)};
  return correction_ * dot(coefficients_, x);
}

void StepFit::believe(const StepFit& like, double scale) {
  if (!like.believed() || !std::isfinite(scale) || scale <= 0) return;
  for (size_t i = 0; i < 3; ++i) expected_[i] = scale * like.correction_ * like.coefficients_[i] * like.prior_[i] / prior_[i];
  believed_ = true;
  coefficients_ = solved();
}

void MovingMean::add(double x, double rate) {
  if (!std::isfinite(x) || x < 0) return;
  ++count;
  value += std::max(rate, 1.0 / static_cast<double>(count)) * (x - value);
}

void StepPace::step_ended(TimePoint now, bool goes_on, double tbt) {
  if (goes_on_) {
    const double most = std::max(kPaceSeconds, kPaceTokens * tbt), seconds = std::min(to_seconds(now - ended_), most), kept = std::exp(-seconds / most);
    wall_ = kept * wall_ + seconds;
    steps_ = kept * steps_ + 1;
  }
  goes_on_ = goes_on;
  ended_ = now;
}

void ArrivalRate::add(TimePoint now) {
  if (!any_) first_ = now;
  const double gap = any_ ? to_seconds(now - last_) : 0;
  longest_ = std::max(longest_ * std::exp(-gap / kGapSeconds), gap);
  if (any_) usual_gap_.add(gap, 1 / kUsualGaps);
  weight_ = weight_ * std::exp(-gap / kArrivalSeconds) + (any_ ? 1 : 0);
  last_ = now;
  any_ = true;
}

// Early on the memory is not full yet. The first one says nothing of how many come. The mean of a Gamma distribution, with what is usual
// as the prior: two of rare ones that come together are not believed to go on, ten are.
double ArrivalRate::per_second(TimePoint now) const {
  if (weight_ == 0) return 0;
  const double age = std::max(to_seconds(now - first_), kArrivalSecondsMin);
  const double full = kArrivalSeconds * (1 - std::exp(-age / kArrivalSeconds));
  const double silent = to_seconds(now - last_), usual = longest_ > 0 ? longest_ * (kSilence + kFewArrivals / weight_) : kArrivalSecondsMin;
  const double prior = kUsualArrivals * std::min(1.0, static_cast<double>(usual_gap_.count) / kGapsKnown);
  const double rate = (weight_ * std::exp(-silent / kArrivalSeconds) + prior) / (full + prior * usual_gap_.value);
  return rate * (silent > usual ? usual / silent : 1);
}

void ModelEstimator::observe_step(const StepWork& work, double seconds) {
  (work.decode ? decode_ : prefill_).observe(work, seconds);
  if (!work.decode) believe_prompts(prefill_.observations());
}

void ModelEstimator::believe(const ModelEstimator& measured, double scale) {
  if (measured.decode_.observations() > 0) decode_.believe(measured.decode_, scale), decode_known_ = true;
  prefill_.believe(measured.prefill_, scale);
  believe_prompts(measured.prefill_.observations());
}

void ModelEstimator::believe_prompts(uint64_t observed) {
  if (!decode_known_ && observed >= kPromptsKnown) decode_.believe(prefill_, 1);
}

// What lies between copying nothing and everything is put down to what was copied.
void ModelEstimator::observe_switch(double seconds, double waited_seconds, double copied) {
  waited_seconds = std::min(waited_seconds, seconds);
  if (copied < kCopiedMin) {  // too little to tell what a copy takes: that is taken off as predicted
    const double whole = switch_.count == 0 ? seconds : switch_.value, bare = adoption_seconds(whole);
    return adoption_.add(std::max(seconds - copied * (whole - bare), 0.0));
  }
  const double rest = std::min(adoption_seconds(seconds), seconds), whole = rest + (seconds - rest) / copied;
  switch_.add(whole);
  waited_.add(seconds > 0 ? whole * waited_seconds / seconds : 0);
}

double ModelEstimator::adoption_seconds(double whole) const { return std::min(whole, adoption_.count == 0 ? kAdoptionSeconds : adoption_.value); }

double ModelEstimator::switch_seconds(double fallback, double copied) const {
  const double whole = switch_.count == 0 ? fallback : switch_.value, bare = adoption_seconds(whole);
  return bare + copied * (whole - bare);
}

// The same share of a switch as ever.
double ModelEstimator::waited_seconds(double fallback, double copied) const {
  if (waited_.count == 0) return fallback;
  return switch_.value > 0 ? waited_.value * switch_seconds(fallback, copied) / switch_.value : 0;
}

double ModelEstimator::step_seconds(const StepWork& work) const { return (work.decode ? decode_ : prefill_).predict(work); }

double ModelEstimator::decode_seconds(uint64_t sequences, uint64_t context_tokens) const {
  return decode_.predict({sequences, context_tokens, true});
}

uint64_t ModelEstimator::rows_within(double seconds, uint64_t decoding, uint64_t context_tokens) const {
  constexpr uint64_t kFar = 1024;  // predictions are linear in the rows
  const double least = prefill_.predict({decoding, context_tokens, false});
  const double each = (prefill_.predict({decoding + kFar, context_tokens, false}) - least) / kFar;
  if (seconds <= least) return decoding;
  const double more = (seconds - least) / std::max(each, 1e-9);
  return decoding + static_cast<uint64_t>(std::min(more, 1e9));
}

double ModelEstimator::prefill_seconds(uint64_t cached, uint64_t tokens, uint64_t tokens_per_step) const {
  CHECK_GT(tokens_per_step, 0u);
  double seconds = 0;
  const uint64_t whole = tokens / tokens_per_step;
  if (whole > 0) {  // the terms of equal steps add up to that of their mean
    const StepWork all = work_of(cached, cached + whole * tokens_per_step);
    seconds += static_cast<double>(whole) * prefill_.predict({tokens_per_step, all.attended / whole, false});
  }
  const uint64_t rest = tokens - whole * tokens_per_step;
  if (rest > 0) seconds += prefill_.predict(work_of(cached + tokens - rest, cached + tokens));
  return seconds;
}

double PromptCost::seconds(uint64_t begin, uint64_t end) const {
  const StepWork work = work_of(begin, end);
  return token_seconds * static_cast<double>(work.rows) + attended_seconds * static_cast<double>(work.attended);
}

PromptCost ModelEstimator::prompt_cost(uint64_t tokens_per_step) const {
  CHECK_GT(tokens_per_step, 0u);
  if (!prefill_.believed()) return {};
  constexpr uint64_t kMany = 1 << 20;  // predictions are linear
  const double whole = prefill_.predict({tokens_per_step, 0, false});
  return {whole / static_cast<double>(tokens_per_step), (prefill_.predict({tokens_per_step, kMany, false}) - whole) / kMany};
}

namespace {

template <typename Numbers>
Json array_of(const Numbers& numbers) {
  Json out = Json::array();
  for (const double x : numbers) out.push_back(x);
  return out;
}

Status read_numbers(const Json& object, const char* key, std::span<double> out) {
  const auto found = object.find(key);
  if (found == object.end() || !found->is_array() || found->size() != out.size()) {
    return invalid_argument("'", key, "' must be ", out.size(), " numbers");
  }
  for (size_t i = 0; i < out.size(); ++i) {
    if (!(*found)[i].is_number()) return invalid_argument("'", key, "' must be ", out.size(), " numbers");
    out[i] = (*found)[i].get<double>();
    if (!std::isfinite(out[i]) || out[i] < 0) return invalid_argument("'", key, "' has a number that is negative or not finite");
  }
  return OkStatus();
}

}  // namespace

std::string ModelEstimator::to_json() const {
  const auto fit = [](const StepFit& f) {
    return Json{{"squares", array_of(f.squares_)}, {"products", array_of(f.products_)}, {"state", {f.correction_, static_cast<double>(f.observations_)}}};
  };
  const auto mean = [](const MovingMean& m) { return Json{m.value, static_cast<double>(m.count)}; };
  return dump_json(Json{{"version", 1}, {"decode", fit(decode_)}, {"prefill", fit(prefill_)},
                        {"switch", mean(switch_)}, {"waited", mean(waited_)}, {"adoption", mean(adoption_)}});
}

StatusOr<ModelEstimator> ModelEstimator::from_json(std::string_view text) {
  ASSIGN_OR_RETURN(const Json json, parse_json(text, {.bytes_max = 64 << 10, .depth_max = 8, .values_max = 256}));
  if (!json.is_object()) return invalid_argument("an estimator is a JSON object");
  ASSIGN_OR_RETURN(const int64_t version, json_int(json, "version", 0, 0, 1000));
  if (version != 1) return invalid_argument("'version' is ", version, ", expected 1; measure anew");
  ModelEstimator out;
  const auto read_count = [](double count, uint64_t& to) -> Status {
    if (count > 1e15) return invalid_argument("a count of ", count, " is absurd");
    to = static_cast<uint64_t>(count);
    return OkStatus();
  };
  for (const auto& [key, fit] : {std::pair("decode", &out.decode_), std::pair("prefill", &out.prefill_)}) {
    const auto found = json.find(key);
    if (found == json.end() || !found->is_object()) return invalid_argument("'", key, "' must be an object");
    std::array<double, 2> state{};
    RETURN_IF_ERROR(read_numbers(*found, "squares", fit->squares_));
    RETURN_IF_ERROR(read_numbers(*found, "products", fit->products_));
    RETURN_IF_ERROR(read_numbers(*found, "state", state));
    fit->correction_ = std::clamp(state[0], 0.1, 10.0);
    RETURN_IF_ERROR(read_count(state[1], fit->observations_));
    fit->coefficients_ = fit->solved();
  }
  for (const auto& [key, mean] : {std::pair("switch", &out.switch_), std::pair("waited", &out.waited_), std::pair("adoption", &out.adoption_)}) {
    if (mean == &out.adoption_ && !json.contains(key)) continue;  // what was written before there was one
    std::array<double, 2> state{};
    RETURN_IF_ERROR(read_numbers(json, key, state));
    mean->value = state[0];
    RETURN_IF_ERROR(read_count(state[1], mean->count));
  }
  out.believe_prompts(out.prefill_.observations());
  return out;
}

}  // namespace shoal
