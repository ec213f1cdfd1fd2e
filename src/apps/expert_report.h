// What `simulate --experts` and `plan --experts` print and write. Every figure is labelled as simulated.
#pragma once

#include <string>
#include <vector>

#include "apps/simulate_report.h"
#include "sim/expert_studies.h"

namespace shoal {

// Title, how it was simulated, the table, notes.
std::string study_text(const StudyTable& table, size_t width);
OrderedJson study_json(const StudyTable& table);
std::string studies_html(const std::vector<StudyTable>& tables, const Settings& settings);

// By their names, or "all"; printed one by one as they end. NotFound names those that there are.
Status run_expert_studies(const std::vector<std::string>& names, uint64_t seed, bool as_json, const std::string& report, const Settings& settings);

// For so many sequences, on a kind of device ("H800" or "H800=3.10"), a token within `token_s`.
Status plan_experts(const std::vector<uint32_t>& sequences, const std::string& kind, double context, double token_s, bool as_json, const std::string& report, const Settings& settings);

}  // namespace shoal
