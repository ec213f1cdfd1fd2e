#include "experts/expert_set.h"

#include <algorithm>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "models/expert_plan.h"
#include "nlohmann/json.hpp"

namespace shoal {
namespace {

constexpr uint32_t kLayerNumbersMax = 4096, kExpertNumbersMax = 65'536;

std::string ranges(const std::vector<uint32_t>& sorted) {
  std::string text;
  for (size_t i = 0; i < sorted.size();) {
    size_t end = i + 1;
    while (end < sorted.size() && sorted[end] == sorted[end - 1] + 1) ++end;
    absl::StrAppend(&text, text.empty() ? "" : ",", sorted[i]);
    if (end - i > 1) absl::StrAppend(&text, "-", sorted[end - 1]);
    i = end;
  }
  return text;
}

// Calls add(number) for each of "3", "0-7,12" or "*"; `all`: [0, all).
template <typename Add>
Status parse_ranges(std::string_view text, uint32_t all, std::string_view what, const Add& add) {
  if (text == "*") {
    for (uint32_t i = 0; i < all; ++i) RETURN_IF_ERROR(add(i));
    return OkStatus();
  }
  for (const absl::string_view part : absl::StrSplit(absl::string_view(text.data(), text.size()), ',')) {
    const std::vector<std::string> ends = absl::StrSplit(part, absl::MaxSplits('-', 1));
    uint32_t first = 0, last = 0;
    if (!absl::SimpleAtoi(ends.front(), &first) || !absl::SimpleAtoi(ends.back(), &last) || last < first || last >= all) {
      return invalid_argument("'", std::string(part), "' names no ", std::string(what), "s of 0 to ", all - 1, "; write numbers and ranges as in 0-7,12");
    }
    for (uint32_t i = first; i <= last; ++i) RETURN_IF_ERROR(add(i));
  }
  return OkStatus();
}

// The experts `ids` of the layer numbered `number` are added.
Status add_experts_of(const ExpertShape& shape, uint32_t number, std::string_view ids, ExpertSet& set) {
  const auto at = std::lower_bound(shape.numbers.begin(), shape.numbers.end(), number);
  if (at == shape.numbers.end() || *at != number) return invalid_argument("layer ", number, " has no experts; those that have are ", ranges(shape.numbers));
  const auto layer = static_cast<uint32_t>(at - shape.numbers.begin());
  return parse_ranges(ids, shape.experts, "expert", [&](uint32_t expert) { return set.add(layer * shape.experts + expert), OkStatus(); });
}

}  // namespace

ExpertShape shape_of(const ExpertPlan& plan) {
  ExpertShape shape{.experts = plan.experts()};
  for (uint32_t layer = 0; layer < plan.layers(); ++layer) shape.numbers.push_back(plan.layer_number(layer));
  return shape;
}

Json write_shape(const ExpertShape& shape) { return {{"layers", ranges(shape.numbers)}, {"experts", shape.experts}}; }

StatusOr<ExpertShape> read_shape(const Json& json) {
  ExpertShape shape;
  ASSIGN_OR_RETURN(const int64_t experts, json_int(json, "experts", 0, 1, kExpertNumbersMax));
  ASSIGN_OR_RETURN(const std::string layers, json_string(json, "layers", ""));
  shape.experts = static_cast<uint32_t>(experts);
  RETURN_IF_ERROR(parse_ranges(layers, kLayerNumbersMax, "layer", [&](uint32_t layer) { return shape.numbers.push_back(layer), OkStatus(); }));
  if (!std::is_sorted(shape.numbers.begin(), shape.numbers.end())) return invalid_argument("layers that are not in order");
  return shape;
}

uint32_t ExpertSet::count() const { return static_cast<uint32_t>(std::count(held_.begin(), held_.end(), true)); }

std::vector<uint32_t> ExpertSet::list() const {
  std::vector<uint32_t> result;
  for (uint32_t i = 0; i < held_.size(); ++i) {
    if (held_[i]) result.push_back(i);
  }
  return result;
}

Json write_set(const ExpertShape& shape, const ExpertSet& set) {
  Json json = Json::object();
  for (uint32_t layer = 0; layer < shape.layers(); ++layer) {
    std::vector<uint32_t> held;
    for (uint32_t expert = 0; expert < shape.experts; ++expert) {
      if (set.has(layer * shape.experts + expert)) held.push_back(expert);
    }
    if (!held.empty()) json[absl::StrCat(shape.numbers[layer])] = ranges(held);
  }
  return json;
}

StatusOr<ExpertSet> read_set(const ExpertShape& shape, const Json& json) {
  if (!json.is_object()) return invalid_argument("experts are written as {\"LAYER\": \"IDS\"}");
  ExpertSet set(shape);
  for (const auto& [key, value] : json.items()) {
    uint32_t number = 0;
    if (!absl::SimpleAtoi(key, &number) || !value.is_string()) return invalid_argument("experts are written as {\"LAYER\": \"IDS\"}, and not as '", key, "'");
    RETURN_IF_ERROR(add_experts_of(shape, number, value.get<std::string>(), set));
  }
  return set;
}

StatusOr<ExpertSet> parse_experts(const ExpertShape& shape, std::string_view text) {
  ExpertSet set(shape);
  for (const absl::string_view part : absl::StrSplit(absl::string_view(text.data(), text.size()), ';')) {
    const std::vector<std::string> sides = absl::StrSplit(part, ':');
    if (sides.size() != 2) return invalid_argument("'", std::string(part), "' is not LAYERS:IDS, as in 0-3:0-7,12");
    if (sides[0] == "*") {
      for (const uint32_t number : shape.numbers) RETURN_IF_ERROR(add_experts_of(shape, number, sides[1], set));
      continue;
    }
    RETURN_IF_ERROR(parse_ranges(sides[0], kLayerNumbersMax, "layer", [&](uint32_t number) { return add_experts_of(shape, number, sides[1], set); }));
  }
  return set;
}

std::string expert_text(const ExpertShape& shape, uint32_t index) {
  return absl::StrCat("layer ", shape.numbers[index / shape.experts], ", expert ", index % shape.experts);
}

}  // namespace shoal
