#include "loadgen/html_page.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"

namespace shoal {
namespace {

constexpr char kPlaceOfData[] = "REPORT_DATA";
constexpr double kDigits = 6;  // more than a screen shows
const char* const kMarks[] = {"line", "area", "bars", "spans", "dots", "labels", "goal", "marks"};

double rounded(double value) {
  if (value == 0 || !std::isfinite(value)) return value;
  const double scale = std::pow(10, kDigits - 1 - std::floor(std::log10(std::fabs(value))));
  return std::isfinite(scale) ? std::round(value * scale) / scale : 0;
}

OrderedJson axis_json(const Axis& axis) {
  OrderedJson out = {{"label", axis.label}, {"low", axis.low}, {"high", axis.high}};
  if (axis.logarithmic) out["log"] = true;
  if (axis.share) out["share"] = true;
  if (axis.whole) out["whole"] = true;
  if (!axis.names.empty()) out["names"] = axis.names;
  return out;
}

OrderedJson chart_json(const Chart& chart) {
  OrderedJson series = OrderedJson::array();
  for (const Series& s : chart.series) {
    OrderedJson one = {{"name", s.name}, {"kind", kMarks[static_cast<size_t>(s.mark)]}, {"colour", s.colour}, {"points", s.points}};
    if (s.steps) one["steps"] = true;
    if (s.large) one["large"] = true;
    series.push_back(std::move(one));
  }
  return {{"title", chart.title}, {"note", chart.note}, {"height", chart.height}, {"x", axis_json(chart.x)}, {"y", axis_json(chart.y)}, {"series", series}};
}

}  // namespace

OrderedJson points_of(const Points& points) {
  OrderedJson out = OrderedJson::array();
  for (const auto& [x, y] : points) out.push_back({rounded(x), rounded(y)});
  return out;
}

OrderedJson bar_of(double from, double to, double value) { return {rounded(from), rounded(to), rounded(value)}; }

OrderedJson span_of(double from, double to, double row_low, double row_high) { return {rounded(from), rounded(to), rounded(row_low), rounded(row_high)}; }

OrderedJson dot_of(double x, double y, const std::string& hint) {
  OrderedJson out = {rounded(x), rounded(y)};
  if (!hint.empty()) out.push_back(hint);
  return out;
}

OrderedJson mark_of(double x, const std::string& label) { return OrderedJson::array({rounded(x), label}); }

HtmlPage::HtmlPage(const std::string& title, const std::vector<std::string>& lede)
    : data_({{"title", title}, {"lede", lede}, {"blocks", OrderedJson::array()}}) {}

void HtmlPage::heading(const std::string& text, const std::string& note) { data_["blocks"].push_back({{"heading", text}, {"text", note}}); }

void HtmlPage::tiles(const std::vector<Tile>& tiles) {
  OrderedJson list = OrderedJson::array();
  for (const Tile& t : tiles) list.push_back({{"value", t.value}, {"name", t.name}, {"bad", t.bad}, {"about", t.about}});
  data_["blocks"].push_back(OrderedJson{{"tiles", std::move(list)}});
}

void HtmlPage::table(const PageTable& table) {
  OrderedJson rows = OrderedJson::array();
  for (const PageTable::Row& row : table.rows) rows.push_back({{"cells", row.cells}, {"class", row.look}});
  OrderedJson one = {{"title", table.title}, {"note", table.note}, {"columns", table.columns}, {"rows", std::move(rows)}, {"words", table.words}};
  data_["blocks"].push_back(OrderedJson{{"table", std::move(one)}});
}

void HtmlPage::charts(const std::vector<Chart>& side_by_side) {
  OrderedJson list = OrderedJson::array();
  for (const Chart& chart : side_by_side) list.push_back(chart_json(chart));
  data_["blocks"].push_back(OrderedJson{{"charts", std::move(list)}});
}

std::string HtmlPage::html() const {
  // Whatever a server said, it cannot end the script that the data is in.
  const std::string data = absl::StrReplaceAll(dump_ordered_json(data_), {{"<", "\\u003c"}});
  return absl::StrReplaceAll(std::string(page_template()), {{kPlaceOfData, data}});
}

std::string number(double value) {
  if (value >= 1000) {
    std::string digits = absl::StrFormat("%.0f", value);
    for (size_t at = digits.size(); at > 3; at -= 3) digits.insert(at - 3, "\u202f");  // a narrow space
    return digits;
  }
  return value == std::floor(value) ? absl::StrFormat("%.0f", value) : value >= 10 ? absl::StrFormat("%.1f", value) : absl::StrFormat("%.3g", value);
}

std::string percent(double share) { return absl::StrFormat("%.1f\u00a0%%", 100 * share); }

Points thinned(const Points& steps, double end, size_t points_max) {
  if (steps.size() <= points_max) return steps;
  const double bin = end / (static_cast<double>(points_max) / 2);
  Points out;
  for (size_t i = 0; i < steps.size();) {
    const double until = (std::floor(steps[i].first / bin) + 1) * bin;
    auto highest = steps[i], last = steps[i];
    do {
      last = steps[i];
      if (last.second > highest.second) highest = last;
    } while (++i < steps.size() && steps[i].first < until);
    out.push_back(highest);
    if (last != highest) out.push_back(last);
  }
  return out;
}

}  // namespace shoal
