// What the two publications on experts as services show, on the scale of their clusters: tables, each with the published
// figure beside ours, and each saying whether it went message by message (sim/expert_world.h: production slots, batch
// forming, placement) or in aggregate (sim/expert_costs.h: rooflines, with the production planners).
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "sim/expert_costs.h"

namespace shoal {

struct StudyTable {
  std::string title;
  std::string how;                         // "messages" or "aggregate", and of what
  std::vector<std::string> columns;
  std::vector<std::vector<std::string>> rows;
  std::vector<std::string> notes;          // what was published, and what ours does not reach
};

struct ExpertStudy {
  std::string_view name, about;
  std::function<StudyTable(uint64_t seed)> run;
};

// way, afd, ratio, load, elastic, grow, losses, placement, lanes, transport, batch-rules, price.
std::span<const ExpertStudy> expert_studies();
// NotFound names those that there are.
StatusOr<const ExpertStudy*> find_expert_study(std::string_view name);

// Dollars an hour and devices for so many sequences at a token period: experts as services against whole groups.
struct ExpertPriceRow {
  uint32_t sequences = 0;
  uint32_t attention = 0, experts = 0;     // as services
  uint32_t tensor_devices = 0, expert_parallel_devices = 0;
  double token_s = 0;
};
StudyTable expert_price(std::span<const uint32_t> sequences, const ExpertDevice& device, double context, double token_s);

}  // namespace shoal
