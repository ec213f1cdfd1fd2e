#include "apps/expert_report.h"

#include "absl/strings/numbers.h"
#include "absl/strings/str_join.h"
#include "apps/output_file.h"
#include "apps/terminal.h"

namespace shoal {

std::string study_text(const StudyTable& table, size_t width) {
  std::vector<TableColumn> columns;
  for (const std::string& heading : table.columns) columns.push_back({heading, 0, !columns.empty()});
  Table out(columns);
  for (const auto& row : table.rows) out.row(row);
  std::string text = absl::StrJoin(wrap_text("SIMULATED: " + table.title, width, 2), "\n") + "\n" + absl::StrJoin(wrap_text("(" + table.how + ")", width, 2), "\n") + "\n" + out.text(width);
  for (const std::string& line : table.notes) absl::StrAppend(&text, absl::StrJoin(wrap_text("- " + line, width, 2), "\n"), "\n");
  return text + "\n";
}

OrderedJson study_json(const StudyTable& table) {
  OrderedJson rows = OrderedJson::array();
  for (const auto& row : table.rows) rows.push_back(row);
  return {{"simulated", true}, {"title", table.title}, {"how", table.how}, {"columns", table.columns}, {"rows", rows}, {"notes", table.notes}};
}

std::string studies_html(const std::vector<StudyTable>& tables, const Settings& settings) {
  HtmlPage page("Experts as services, simulated", {"shoal simulate --experts: the slots and batch forming of production, and the policies of placement and overlap, on devices that are cost models. No figure here was measured on a device."});
  for (const StudyTable& table : tables) {
    PageTable out{.title = table.title, .note = table.how + ". " + absl::StrJoin(table.notes, " "), .columns = table.columns};
    for (const auto& row : table.rows) out.rows.push_back({row, ""});
    page.table(out);
  }
  add_settings(settings, page);
  return page.html();
}

Status run_expert_studies(const std::vector<std::string>& names, uint64_t seed, bool as_json, const std::string& report, const Settings& settings) {
  std::vector<const ExpertStudy*> chosen;
  for (const std::string& name : names) {
    if (name == "all") {
      for (const ExpertStudy& study : expert_studies()) chosen.push_back(&study);
      continue;
    }
    auto study = find_expert_study(name);
    if (!study.ok()) return annotate(study.status(), "--experts");
    chosen.push_back(*study);
  }
  std::vector<StudyTable> tables;
  OrderedJson all = OrderedJson::array();
  for (const ExpertStudy* study : chosen) {
    tables.push_back(study->run(seed));
    if (as_json) all.push_back(study_json(tables.back()));
    else show_text(study_text(tables.back(), stdout_columns()));
  }
  if (as_json) show_text(dump_ordered_json(all, 1) + "\n");
  return report.empty() ? OkStatus() : write_output(report, studies_html(tables, settings));
}

Status plan_experts(const std::vector<uint32_t>& sequences, const std::string& kind, double context, double token_s, bool as_json, const std::string& report, const Settings& settings) {
  const size_t equals = kind.find('=');
  const ExpertDevice* known = find_expert_device(kind.substr(0, equals));
  if (known == nullptr) return invalid_argument("--kinds ", kind, ": plans of experts know H800, H200 and H20");
  ExpertDevice device = *known;
  const bool priced = equals == std::string::npos || absl::SimpleAtod(kind.substr(equals + 1), &device.price_per_hour);
  if (!priced || !(device.price_per_hour >= 0)) return invalid_argument("--kinds ", kind, ": write NAME or NAME=PRICE per hour");
  const StudyTable table = expert_price(sequences, device, context, token_s);
  show_text(as_json ? dump_ordered_json(study_json(table), 1) + "\n" : study_text(table, stdout_columns()));
  return report.empty() ? OkStatus() : write_output(report, studies_html({table}, settings));
}

}  // namespace shoal
