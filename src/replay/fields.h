// Structs as JSON objects, by one list of their fields for both directions. For the files of this folder only.
#pragma once

#include <concepts>
#include <limits>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/ids.h"
#include "base/json.h"
#include "nlohmann/json.hpp"
#include "roles/node.h"

namespace shoal {

template <typename T>
struct IsId : std::false_type {};
template <typename Tag, typename Rep>
struct IsId<StrongId<Tag, Rep>> : std::true_type {};

constexpr int last_of(Duty) { return static_cast<int>(Duty::kDecode); }
constexpr int last_of(Scheduling) { return static_cast<int>(Scheduling::kStatic); }

// Every field of a struct, once. Whoever adds one to the struct must name it here: the number of names is checked.
template <typename Visit>
void fields_of(Visit& visit, auto&& value) {
  using T = std::remove_cvref_t<decltype(value)>;
  if constexpr (std::is_same_v<T, NodeConfig>) {
    auto& [self, duty, pages, workspace_bytes, host_pages, models, gateways, limits, prompt_tokens_min, gap_stretch, waiting_max, prefix_cache, scheduling, turns,
           prompts, switching, load_bytes_per_second, status_interval, offer_time] = value;
    visit("self", self), visit("duty", duty), visit("pages", pages), visit("workspace_bytes", workspace_bytes), visit("host_pages", host_pages);
    visit("models", models), visit("gateways", gateways), visit("limits", limits), visit("prompt_tokens_min", prompt_tokens_min);
    visit("gap_stretch", gap_stretch), visit("waiting_max", waiting_max), visit("prefix_cache", prefix_cache), visit("scheduling", scheduling);
    visit("turns", turns), visit("prompts", prompts), visit("switching", switching), visit("load_bytes_per_second", load_bytes_per_second);
    visit("status_interval", status_interval), visit("offer_time", offer_time);
  } else if constexpr (std::is_same_v<T, NodeModel>) {
    auto& [model, name, weight_bytes, kv_block_bytes, max_model_len, vocab_size, kv_salt_above, pooling, costs] = value;
    visit("model", model), visit("name", name), visit("weight_bytes", weight_bytes), visit("kv_block_bytes", kv_block_bytes);
    visit("max_model_len", max_model_len), visit("vocab_size", vocab_size), visit("kv_salt_above", kv_salt_above), visit("costs", costs);
    auto& [slo, max_wait, idle_ttl, priority, pinned] = pooling;
    visit("slo", slo), visit("priority", priority), visit("pinned", pinned), visit("idle_ttl", idle_ttl), visit("max_wait", max_wait);
  } else if constexpr (std::is_same_v<T, SloTarget>) {
    auto& [ttft, tbt] = value;
    visit("ttft", ttft), visit("tbt", tbt);
  } else if constexpr (std::is_same_v<T, BatchLimits>) {
    auto& [tokens_per_step, sequences_max, logit_rows_max, admit, admissions_max] = value;
    visit("tokens_per_step", tokens_per_step), visit("sequences_max", sequences_max), visit("logit_rows_max", logit_rows_max);
    visit("admit", admit), visit("admissions_max", admissions_max);
  } else if constexpr (std::is_same_v<T, TurnOptions>) {
    auto& [quota_max_seconds, least_slack_first, enter_running_round, end_early, recompute, cover_switch] = value;
    visit("quota_max_seconds", quota_max_seconds), visit("least_slack_first", least_slack_first), visit("enter_running_round", enter_running_round);
    visit("end_early", end_early), visit("recompute", recompute), visit("cover_switch", cover_switch);
  } else if constexpr (std::is_same_v<T, PrefillOptions>) {
    auto& [group_max, age_guard] = value;
    visit("group_max", group_max), visit("age_guard", age_guard);
  } else if constexpr (std::is_same_v<T, SwitchLimits>) {
    auto& [hold_after] = value;
    visit("hold_after", hold_after);
  } else {
    static_assert(std::is_same_v<T, LoadStages>);
    auto& [unmap_seconds, map_seconds, open_seconds, read_seconds, repack_seconds, bytes_read, bytes_written] = value;
    visit("unmap_seconds", unmap_seconds), visit("map_seconds", map_seconds), visit("open_seconds", open_seconds), visit("read_seconds", read_seconds);
    visit("repack_seconds", repack_seconds), visit("bytes_read", bytes_read), visit("bytes_written", bytes_written);
  }
}

// ---- writing ----------------------------------------------------------------------------------------------------------------

template <typename T>
Json written(const T& value) {
  if constexpr (std::is_enum_v<T>) {
    return static_cast<int>(value);
  } else if constexpr (std::is_same_v<T, Duration>) {
    return value.count();
  } else if constexpr (IsId<T>::value) {
    return value.value;
  } else if constexpr (std::is_arithmetic_v<T> || std::is_same_v<T, std::string>) {
    return value;
  } else if constexpr (std::is_same_v<T, ModelEstimator>) {
    return value.to_json();
  } else if constexpr (requires { value.begin(); }) {
    Json out = Json::array();
    for (const auto& item : value) out.push_back(written(item));
    return out;
  } else {
    Json out = Json::object();
    auto visit = [&out](const char* key, const auto& field) { out[key] = written(field); };
    fields_of(visit, value);
    return out;
  }
}

// ---- reading ----------------------------------------------------------------------------------------------------------------

constexpr size_t kListMax = 1 << 20;

template <typename T>
  requires std::integral<T>
Status read_integer(const Json& json, T& out) {
  const bool fits = json.is_number_unsigned() ? std::in_range<T>(json.get<uint64_t>()) : json.is_number_integer() && std::in_range<T>(json.get<int64_t>());
  if (!fits) return invalid_argument("is not a number of its range");
  out = json.is_number_unsigned() ? static_cast<T>(json.get<uint64_t>()) : static_cast<T>(json.get<int64_t>());
  return OkStatus();
}

inline Status read_request(const Json& json, RequestId& out) {
  if (!json.is_array()) return read_integer(json, out.sequence);
  if (json.size() != 3) return invalid_argument("is neither a number nor [gateway, life, sequence]");
  RETURN_IF_ERROR(read_integer(json[0], out.gateway.value));
  RETURN_IF_ERROR(read_integer(json[1], out.life));
  return read_integer(json[2], out.sequence);
}

// InvalidArgument names the field that is missing, of another kind or out of range.
template <typename T>
Status read(const Json& json, T& out) {
  if constexpr (std::is_same_v<T, bool>) {
    if (!json.is_boolean()) return invalid_argument("is neither true nor false");
    out = json.get<bool>();
  } else if constexpr (std::is_enum_v<T>) {
    int number = 0;
    RETURN_IF_ERROR(read_integer(json, number));
    if (number < 0 || number > last_of(T{})) return invalid_argument("is none of the known values");
    out = static_cast<T>(number);
  } else if constexpr (std::is_same_v<T, Duration>) {
    int64_t ns = 0;
    RETURN_IF_ERROR(read_integer(json, ns));
    out = Duration(ns);
  } else if constexpr (IsId<T>::value) {
    return read_integer(json, out.value);
  } else if constexpr (std::is_same_v<T, RequestId>) {
    return read_request(json, out);
  } else if constexpr (std::integral<T>) {
    return read_integer(json, out);
  } else if constexpr (std::floating_point<T>) {
    if (!json.is_number()) return invalid_argument("is not a finite number");
    out = json.get<T>();
  } else if constexpr (std::is_same_v<T, std::string>) {
    if (!json.is_string()) return invalid_argument("is not a text");
    out = json.get<std::string>();
  } else if constexpr (std::is_same_v<T, ModelEstimator>) {
    if (!json.is_string()) return invalid_argument("is not a text");
    ASSIGN_OR_RETURN(out, ModelEstimator::from_json(json.get<std::string>()));
  } else if constexpr (requires { out.push_back(typename T::value_type{}); }) {
    if (!json.is_array() || json.size() > kListMax) return invalid_argument("is not a list, or too long");
    for (const Json& item : json) RETURN_IF_ERROR(read(item, out.emplace_back()));
  } else {
    if (!json.is_object()) return invalid_argument("is not an object");
    Status status;
    auto visit = [&](const char* key, auto& field) {
      if (!status.ok()) return;
      const auto found = json.find(key);
      status = annotate(found == json.end() ? invalid_argument("is missing") : read(*found, field), key);
    };
    fields_of(visit, out);
    return status;
  }
  return OkStatus();
}

}  // namespace shoal
