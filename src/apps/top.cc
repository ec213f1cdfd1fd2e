#include "apps/top.h"

#include <algorithm>
#include <cmath>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "apps/json_values.h"
#include "apps/table.h"
#include "base/bytes.h"
#include "nlohmann/json.hpp"

namespace shoal {
namespace {

constexpr char kBold[] = "\033[1m", kDim[] = "\033[2m", kGreen[] = "\033[32m", kYellow[] = "\033[33m", kRed[] = "\033[31m", kReset[] = "\033[0m";
constexpr size_t kBarWidth = 30, kIndent = 2, kFactGap = 3;
constexpr double kGoal = 0.9;  // of tokens on time

std::string bytes(double value) { return format_bytes(static_cast<uint64_t>(std::max(0.0, value))); }

std::string seconds_text(double seconds) {
  return seconds < 1 ? absl::StrFormat("%.0f ms", seconds * 1e3) : absl::StrFormat("%.3g s", seconds);
}

std::string share_text(double share) { return std::isnan(share) ? "-" : absl::StrFormat("%.1f %%", share * 100); }
std::string rate_text(double rate) { return std::isnan(rate) ? "-" : absl::StrFormat("%.1f", rate); }

const Json* model_in(const Json& status, const std::string& id) {
  if (!status.is_object() || !status.contains("models") || !status["models"].is_array()) return nullptr;
  for (const Json& model : status["models"]) {
    if (text_at(model, "id") == id) return &model;
  }
  return nullptr;
}

// Of what happened between two answers.
struct Lately {
  double tokens_per_second = NAN, prompt_per_second = NAN, on_time = NAN;
};

Lately lately(const Json& model, const Json& now, const Json& before) {
  Lately out;
  const Json* old = model_in(before, text_at(model, "id"));
  const double seconds = number_at(now, "time") - number_at(before, "time", NAN);
  if (old == nullptr || !(seconds > 0)) return out;
  out.tokens_per_second = (number_at(model, "generated_tokens") - number_at(*old, "generated_tokens")) / seconds;
  out.prompt_per_second = (number_at(model, "prompt_tokens") - number_at(*old, "prompt_tokens")) / seconds;
  const Json a = member(model, "attainment"), b = member(*old, "attainment");
  const double counted = number_at(a, "tokens_counted") - number_at(b, "tokens_counted");
  if (counted > 0) out.on_time = (number_at(a, "tokens_on_time") - number_at(b, "tokens_on_time")) / counted;
  return out;
}

// Those on the device first, then those in line, then those that had work, each by name.
std::vector<Json> sorted_models(const Json& status) {
  std::vector<Json> models;
  for (const Json& model : list_at(status, "models")) models.push_back(model);
  const auto rank = [](const Json& m) {
    const std::string state = text_at(m, "state");
    const double place = number_at(m, "next");
    const int group = state == "loaded" ? 0 : state == "loading" ? 1 : place > 0 ? 2 : state == "failed" ? 3 : number_at(m, "loads") > 0 ? 4 : 5;
    return std::tuple(group, place, text_at(m, "id"));
  };
  std::stable_sort(models.begin(), models.end(), [&](const Json& a, const Json& b) { return rank(a) < rank(b); });
  return models;
}

class Screen {
 public:
  explicit Screen(const TopScreen& screen) : screen_(screen) {}

  void line(const std::string& text, const char* style = "") {
    for (const std::string& part : wrap_text(text, screen_.width, kIndent)) add(part, style);
  }
  // Sides by side, as far as they fit.
  void facts(const std::vector<std::string>& facts, const char* style = "") {
    std::string row;
    for (const std::string& fact : facts) {
      const bool fits = row.empty() || columns_of(row) + kFactGap + columns_of(fact) <= screen_.width;
      if (!fits) line(std::exchange(row, std::string(kIndent, ' ')), style);
      absl::StrAppend(&row, row.empty() || !fits ? "" : std::string(kFactGap, ' '), fact);
    }
    line(row, style);
  }
  void add(const std::string& part, const char* style) {
    lines_.push_back(screen_.color && *style != '\0' ? absl::StrCat(style, part, kReset) : part);
  }
  size_t width() const { return screen_.width; }
  std::string text() {
    if (screen_.height > 0 && lines_.size() > screen_.height) {
      const size_t hidden = lines_.size() - screen_.height + 1;
      lines_.resize(screen_.height - 1);
      line(absl::StrFormat("... and %d more", hidden), kDim);
    }
    std::string out;
    for (const std::string& line : lines_) absl::StrAppend(&out, line, "\n");
    return out;
  }

 private:
  const TopScreen& screen_;
  std::vector<std::string> lines_;
};

// "[WWWWKK....]" in proportion.
std::string bar(double weights, double kv, double total) {
  if (!(total > 0)) return "";
  const auto cells = [&](double part) { return static_cast<size_t>(std::clamp(part / total, 0.0, 1.0) * kBarWidth + 0.5); };
  std::string out(kBarWidth, '.');
  const size_t w = cells(weights), k = std::min(kBarWidth, std::max(cells(weights + kv), w));
  std::fill(out.begin(), out.begin() + static_cast<ptrdiff_t>(w), 'W');
  std::fill(out.begin() + static_cast<ptrdiff_t>(w), out.begin() + static_cast<ptrdiff_t>(k), 'K');
  return "[" + out + "]";
}

void add_node(const Json& node, Screen& out) {
  const double total = number_at(node, "memory"), weights = number_at(node, "weights"), bound = number_at(node, "kv_bound");
  std::vector<std::string> facts = {absl::StrCat("node ", node.contains("name") && node["name"].is_string() ? node["name"].get<std::string>() : absl::StrFormat("%.0f", number_at(node, "id")))};
  if (const std::string cells = bar(weights, bound, total); !cells.empty() && cells.size() + kIndent <= out.width()) facts.push_back(cells);
  facts.push_back(absl::StrFormat("%s weights, %s KV, %s free of %s", bytes(weights), bytes(bound), bytes(number_at(node, "free")), bytes(total)));
  facts.push_back(absl::StrFormat("%.0f %% of the KV's memory unused", number_at(node, "kv_fragmentation") * 100));
  if (node.contains("alpha")) facts.push_back(absl::StrFormat("decoding in time takes %.0f %% of the device", number_at(node, "alpha") * 100));
  out.facts(facts);
  if (number_at(node, "host_memory") <= 0) return;
  out.line(absl::StrFormat("  KV in host memory: %s of %s; %s went out, %s came back", bytes(number_at(node, "host_kv")),
                           bytes(number_at(node, "host_memory")), bytes(number_at(node, "kv_bytes_out")), bytes(number_at(node, "kv_bytes_in"))), kDim);
}

// How well the experts of a model are spread, and found.
std::string experts_line(const Json& model) {
  const Json experts = member(model, "experts");
  std::vector<std::pair<double, size_t>> layers;
  for (const Json& skew : list_at(experts, "skew")) layers.emplace_back(skew.is_number() ? skew.get<double>() : 0.0, layers.size());
  if (layers.empty()) return "";
  std::string line = "    experts: ";
  if (const double lookups = number_at(experts, "lookups"); lookups > 0) {
    absl::StrAppendFormat(&line, "%.1f %% found on the device, %s fetched; ", number_at(experts, "hits") / lookups * 100, bytes(number_at(experts, "bytes_fetched")));
  }
  if (const double asked = number_at(experts, "rows_asked"); asked > 0) {
    absl::StrAppendFormat(&line, "%.0f rows asked of servers, %.0f of them again, %.1f s waited; ", asked, number_at(experts, "rows_resent"), number_at(experts, "waited_seconds"));
  }
  std::sort(layers.rbegin(), layers.rend());
  line += "the busiest has";
  for (size_t i = 0; i < std::min<size_t>(3, layers.size()); ++i) {
    absl::StrAppendFormat(&line, "%s %.1fx the mean in layer %d", i == 0 ? "" : ",", layers[i].first, layers[i].second);
  }
  return line;
}

// A row of the table, and how it is shown.
struct ModelRow {
  std::vector<std::string> cells;
  const char* style;
  std::string error;
  std::string experts;
};

const std::vector<TableColumn>& columns() {
  static const std::vector<TableColumn> all = {{"MODEL"}, {"STATE", 0, false, 8}, {"NEXT", 5, true}, {"RUN", 3, true}, {"WAIT", 4, true}, {"TOK/S", 1, true, 7},
                                               {"PROMPT/S", 6, true}, {"ON TIME", 2, true}, {"SINCE START", 7, true}, {"TTFT", 9, true}, {"TBT", 10, true},
                                               {"WEIGHTS", 8, true, 9}, {"KV", 11, true, 9}, {"LOADS", 12, true}};
  return all;
}

ModelRow row_of(const Json& model, const Lately& recent) {
  std::string state = text_at(model, "state");
  if (state == "loading") state = absl::StrFormat("loading %.0f %%", number_at(model, "progress") * 100);
  const double place = number_at(model, "next"), tokens = number_at(member(model, "attainment"), "tokens_counted");
  const double ever = tokens > 0 ? number_at(member(model, "attainment"), "tokens") : NAN;
  const Json slo = member(model, "slo");
  const double worst = std::isnan(recent.on_time) ? ever : recent.on_time;
  const bool failed = text_at(model, "state") == "failed", loading = text_at(model, "state") == "loading";
  const char* style = failed ? kRed : !std::isnan(worst) && worst < kGoal ? kYellow : text_at(model, "state") == "loaded" ? kGreen : loading || place > 0 ? "" : kDim;
  const auto whole = [](double number) { return absl::StrFormat("%.0f", number); };
  return {.cells = {text_at(model, "id"), state, place > 0 ? whole(place) : "-", whole(number_at(model, "running")), whole(number_at(model, "waiting")),
                    rate_text(recent.tokens_per_second), rate_text(recent.prompt_per_second), share_text(recent.on_time), share_text(ever),
                    seconds_text(number_at(slo, "ttft")), seconds_text(number_at(slo, "tbt")), bytes(number_at(model, "weight_bytes")),
                    bytes(number_at(model, "kv_bytes")), whole(number_at(model, "loads"))},
          .style = style,
          .error = failed ? text_at(model, "error") : text_at(model, "held_up"),
          .experts = experts_line(model)};
}

}  // namespace

std::string top_screen(const Json& now, const Json& before, const TopScreen& screen) {
  Screen out(screen);
  double served = 0, hidden = 0, nothing = 0, adopted = 0, written = 0;
  for (const Json& model : list_at(now, "models")) {
    served += number_at(model, "switches_served");
    hidden += number_at(model, "switches_hidden");
    nothing += number_at(model, "switches_copied_nothing");
    adopted += number_at(model, "bytes_adopted");
    written += number_at(model, "bytes_written");
  }
  std::vector<std::string> facts = {"Shoal at " + screen.server, count_text(number_at(now, "requests"), "request"),
                                    count_text(number_at(now, "switches_last_minute"), "load") + " in the last minute"};
  if (served > 0) facts.push_back(absl::StrFormat("%.0f %% of all loads let nobody wait", hidden / served * 100));
  if (nothing > 0) facts.push_back(absl::StrFormat("%.0f %% copied nothing", nothing / served * 100));
  if (adopted > 0) facts.push_back(absl::StrFormat("%.0f %% of weights were there", adopted / (adopted + written) * 100));
  if (now.is_object() && now.value("draining", Json(false)) == Json(true)) facts.push_back("DRAINING");
  out.facts(facts, kBold);
  for (const Json& node : list_at(now, "nodes")) add_node(node, out);
  out.line("");
  Table table(columns());
  std::vector<ModelRow> rows;
  for (const Json& model : sorted_models(now)) {
    rows.push_back(row_of(model, lately(model, now, before)));
    table.row(rows.back().cells);
  }
  const Table::Lines lines = table.lines(screen.width);
  out.add(lines.heading, kBold);
  for (size_t i = 0; i < rows.size(); ++i) {
    out.add(lines.rows[i], rows[i].style);
    if (!rows[i].error.empty()) out.line("    " + rows[i].error, kRed);
    if (!rows[i].experts.empty()) out.line(rows[i].experts, kDim);
  }
  for (const std::string& line : left_out_lines(lines.left_out, screen.width)) out.add(line, kDim);
  return out.text();
}

Json top_json(const Json& now, const Json& before) {
  Json out = now;
  if (!out.is_object() || !out.contains("models") || !out["models"].is_array()) return out;
  const auto number = [](double value) { return std::isnan(value) ? Json(nullptr) : Json(value); };
  for (Json& model : out["models"]) {
    if (!model.is_object()) continue;
    const Lately recent = lately(model, now, before);
    model["lately"] = {{"tokens_per_second", number(recent.tokens_per_second)}, {"prompt_tokens_per_second", number(recent.prompt_per_second)},
                       {"on_time", number(recent.on_time)}};
  }
  return out;
}

}  // namespace shoal
