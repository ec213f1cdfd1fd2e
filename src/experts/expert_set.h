// Some of a model's experts, and how people and notes write them: {"3": "0-7,12"}, by the layers' numbers in the model.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/status.h"

namespace shoal {

class ExpertPlan;

// Of a model, as far as it matters where its experts are.
struct ExpertShape {
  std::vector<uint32_t> numbers;  // of the layers that have experts, ascending
  uint32_t experts = 0;           // of a layer

  uint32_t layers() const { return static_cast<uint32_t>(numbers.size()); }
  uint32_t count() const { return layers() * experts; }
  friend bool operator==(const ExpertShape&, const ExpertShape&) = default;
};
ExpertShape shape_of(const ExpertPlan& plan);
Json write_shape(const ExpertShape& shape);
StatusOr<ExpertShape> read_shape(const Json& json);

// Experts by index: layer (of those that have some) * experts + expert.
class ExpertSet {
 public:
  ExpertSet() = default;
  explicit ExpertSet(const ExpertShape& shape) : held_(shape.count(), false) {}

  bool has(uint32_t index) const { return index < held_.size() && held_[index]; }
  void add(uint32_t index) { held_[index] = true; }
  void remove(uint32_t index) { held_[index] = false; }
  uint32_t count() const;
  std::vector<uint32_t> list() const;
  friend bool operator==(const ExpertSet&, const ExpertSet&) = default;

 private:
  std::vector<bool> held_;
};

Json write_set(const ExpertShape& shape, const ExpertSet& set);
// InvalidArgument naming a layer or an expert that the model does not have.
StatusOr<ExpertSet> read_set(const ExpertShape& shape, const Json& json);
// "LAYERS:IDS[;LAYERS:IDS...]": numbers, ranges and '*', as in "0-3:0-7,12;5:*".
StatusOr<ExpertSet> parse_experts(const ExpertShape& shape, std::string_view text);
// "layer 3, expert 12".
std::string expert_text(const ExpertShape& shape, uint32_t index);

}  // namespace shoal
