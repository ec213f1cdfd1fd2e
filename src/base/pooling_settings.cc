#include "base/pooling_settings.h"

#include <algorithm>

namespace shoal {
namespace {

constexpr double kDaySeconds = 86400, kYearSeconds = 365 * kDaySeconds;

const PoolingField kFields[] = {
    {.number = 2, .key = "ttft", .place = [](PoolingSettings& s) -> Duration& { return s.slo.ttft; }, .min = 0.001, .max = kDaySeconds,
     .help = "Time to the first token that turns aim at: TIME or MODEL=TIME, in seconds or as 500ms, 2m (default: 10)", .adjective = nullptr,
     .meaning = "deadline of the first token, from the arrival"},
    {.number = 8, .key = "ttft-loads", .place = [](PoolingSettings& s) -> int32_t& { return s.ttft_loads; }, .min = 0, .max = 1000,
     .help = "Turns aim at a first token within so many loads, if that is longer than --ttft: N or MODEL=N (default: 4, and 0 where a ttft is given)",
     .adjective = nullptr,
     .meaning = "turns aim at a first token within so many loads of the model, if that is longer than `ttft` (4; 0 where `ttft` is given)"},
    {.number = 3, .key = "tbt", .place = [](PoolingSettings& s) -> Duration& { return s.slo.tbt; }, .min = 0.0001, .max = kDaySeconds,
     .help = "Likewise between tokens (default: 0.1)", .adjective = nullptr,
     .meaning = "of each later one: token k is due at arrival + ttft + (k - 1) x tbt"},
    {.number = 7, .key = "max-wait", .place = [](PoolingSettings& s) -> Duration& { return s.max_wait; }, .min = 0.000001, .max = kDaySeconds,
     .help = "Longest wait for the first step: TIME or MODEL=TIME; what would wait longer gets 503 with Retry-After", .adjective = nullptr,
     .meaning = "longest wait from the arrival to the first step; what would wait longer gets 503 with `Retry-After`"},
    {.number = 6, .key = "idle-ttl", .place = [](PoolingSettings& s) -> Duration& { return s.idle_ttl; }, .min = 0, .max = kYearSeconds,
     .help = "A model without requests leaves the device after TIME, or MODEL=TIME", .adjective = nullptr,
     .meaning = "without a request for so long, the model leaves the device"},
    {.number = 4, .key = "priority", .place = [](PoolingSettings& s) -> int32_t& { return s.priority; }, .min = -1000, .max = 1000,
     .help = "Of models that wait for the device the higher comes first: N or MODEL=N (default: 0)", .adjective = nullptr,
     .meaning = "higher first among models that wait for the device"},
    {.number = 5, .key = "pin", .place = [](PoolingSettings& s) -> bool& { return s.pinned; }, .min = 0, .max = 1,
     .help = "Models that are loaded at start and never give way", .adjective = "pinned",
     .meaning = "loaded at start, and stays"},
};

const PoolingField* found(const PoolingField* field) { return field == std::end(kFields) ? nullptr : field; }

}  // namespace

std::span<const PoolingField> pooling_fields() { return kFields; }

const PoolingField* pooling_field(std::string_view key) {
  return found(std::find_if(std::begin(kFields), std::end(kFields), [&](const PoolingField& f) { return f.key == key; }));
}

const PoolingField* pooling_field(uint32_t number) {
  return found(std::find_if(std::begin(kFields), std::end(kFields), [&](const PoolingField& f) { return f.number == number; }));
}

int64_t value_of(const PoolingField& field, const PoolingSettings& settings) {
  PoolingSettings copy = settings;
  if (field.is_time()) return std::get<0>(field.place)(copy).count();
  return field.is_number() ? std::get<1>(field.place)(copy) : static_cast<int64_t>(std::get<2>(field.place)(copy));
}

void set_value(const PoolingField& field, int64_t value, PoolingSettings& settings) {
  if (field.is_time()) std::get<0>(field.place)(settings) = Duration(value);
  if (field.is_number()) std::get<1>(field.place)(settings) = static_cast<int32_t>(value);
  if (field.is_switch()) std::get<2>(field.place)(settings) = value != 0;
}

void set_said(const PoolingField& field, double said, PoolingSettings& settings) {
  if (field.is_time() && &std::get<0>(field.place)(settings) == &settings.slo.ttft) settings.ttft_loads = 0;
  set_value(field, field.is_time() ? from_seconds(said).count() : static_cast<int64_t>(said), settings);
}

}  // namespace shoal
