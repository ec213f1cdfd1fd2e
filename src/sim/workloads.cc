#include "sim/workloads.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <set>

#include "base/check.h"
#include "workload/arrivals.h"

namespace shoal {
namespace {

TokenId made_up_token(uint64_t text, uint64_t position) {
  return static_cast<TokenId>(mix64(text ^ (position * 0x9e37'79b9'7f4a'7c15ull)) % kSimulatedVocab);
}

constexpr TokenId kEnd = kSimulatedVocab - 1;

// Cut to what the model holds: the prompt gives way first, an answer has at least one token.
Request make_request(uint64_t id, uint32_t model, Lengths lengths, uint32_t longest, bool& cut, bool told = true) {
  Request r;
  r.id = RequestId(id);
  r.model = ModelId(model);
  cut = uint64_t{lengths.input_tokens} + lengths.output_tokens > longest;
  const uint32_t output = std::clamp(lengths.output_tokens, 1u, std::max(longest / 2, 1u));
  r.max_tokens = output;
  r.prompt.resize(std::clamp(lengths.input_tokens, 1u, longest - output));
  for (size_t i = 0; i < r.prompt.size(); ++i) r.prompt[i] = made_up_token(id, i);
  if (!told) {  // a light device ends an answer as soon as it may
    r.min_tokens = output - 1;
    r.max_tokens = longest - static_cast<uint32_t>(r.prompt.size());
    r.stop_ids = {kEnd};
  }
  return r;
}

double normal(Rng& rng) { return std::sqrt(-2 * std::log(1 - rng.uniform())) * std::cos(2 * std::numbers::pi * rng.uniform()); }

}  // namespace

std::vector<std::string> TraceWorkload::names_of(const std::vector<TraceRow>& rows) {
  std::set<std::string> names;
  for (const TraceRow& row : rows) names.insert(row.model);
  names.erase("");
  return {names.begin(), names.end()};
}

TraceWorkload::TraceWorkload(std::vector<TraceRow> rows, std::vector<uint32_t> model_len)
    : rows_(std::move(rows)), model_len_(std::move(model_len)), names_(names_of(rows_)) {
  CHECK(!model_len_.empty());
}

std::optional<Arrival> TraceWorkload::next() {
  if (at_ == rows_.size()) return std::nullopt;
  const TraceRow& row = rows_[at_++];
  size_t model = at_ - 1;
  if (!row.model.empty()) model = static_cast<size_t>(std::lower_bound(names_.begin(), names_.end(), row.model) - names_.begin());
  model %= model_len_.size();
  bool cut = false;
  Arrival arrival{make_request(at_, static_cast<uint32_t>(model), {row.input_tokens, row.output_tokens}, model_len_[model], cut)};
  cut_ += cut;
  for (size_t block = 0; block < row.block_ids.size(); ++block) {  // shared text in front
    for (size_t i = block * kTraceBlockTokens; i < std::min<size_t>((block + 1) * kTraceBlockTokens, arrival.request.prompt.size()); ++i) {
      arrival.request.prompt[i] = made_up_token(~row.block_ids[block], i);
    }
  }
  arrival.at = TimePoint(from_seconds(row.arrival_s));
  return arrival;
}

SyntheticWorkload::SyntheticWorkload(SyntheticSpec spec, std::vector<uint32_t> model_len)
    : spec_(std::move(spec)), model_len_(std::move(model_len)), rng_(spec_.seed) {
  CHECK(!model_len_.empty());
  for (const auto* times : {&spec_.input_times, &spec_.output_times}) CHECK(times->empty() || times->size() == model_len_.size());
  double sum = 0;
  for (size_t i = 0; i < model_len_.size(); ++i) weights_.push_back(sum += std::pow(static_cast<double>(i + 1), -spec_.zipf));
  for (double& weight : weights_) weight /= sum;
}

Lengths SyntheticWorkload::draw_lengths(uint32_t model) {
  if (!spec_.lengths.empty()) return spec_.lengths[rng_.below(spec_.lengths.size())];
  const auto draw = [&](double mean, const std::vector<double>& times) {  // the mean of a lognormal is exp(mu + sigma^2 / 2)
    const double value = mean * (times.empty() ? 1 : times[model]) * std::exp(spec_.spread * normal(rng_) - spec_.spread * spec_.spread / 2);
    return static_cast<uint32_t>(std::clamp(value, 1.0, 1e6));
  };
  const uint32_t input = draw(spec_.input_mean, spec_.input_times);
  return {input, draw(spec_.output_mean, spec_.output_times)};
}

uint32_t SyntheticWorkload::draw_model() {
  const auto found = std::upper_bound(weights_.begin(), weights_.end(), rng_.uniform());
  return static_cast<uint32_t>(std::min<size_t>(static_cast<size_t>(found - weights_.begin()), weights_.size() - 1));
}

std::optional<Arrival> SyntheticWorkload::next() {
  when_ += unit_gamma(rng_, spec_.cv > 0 ? 1 / (spec_.cv * spec_.cv) : INFINITY) / spec_.requests_per_second;
  if (when_ > spec_.duration_seconds) return std::nullopt;
  const uint32_t model = draw_model();
  bool cut = false;
  Arrival arrival{make_request(++made_, model, draw_lengths(model), model_len_[model], cut, spec_.told)};
  arrival.at = TimePoint(from_seconds(when_));
  if (!spec_.told) arrival.answer_tokens = arrival.request.min_tokens + 1;
  return arrival;
}

}  // namespace shoal
