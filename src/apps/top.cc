#include "apps/top.h"

#include <algorithm>
#include <cmath>
#include <tuple>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "apps/json_values.h"
#include "base/bytes.h"
#include "nlohmann/json.hpp"

namespace shoal {
namespace {

constexpr char kBold[] = "\033[1m", kDim[] = "\033[2m", kGreen[] = "\033[32m", kYellow[] = "\033[33m", kRed[] = "\033[31m", kReset[] = "\033[0m";
constexpr size_t kBarWidth = 30;
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
    const std::string cut = text.substr(0, screen_.width);
    lines_.push_back(screen_.color && *style != '\0' ? absl::StrCat(style, cut, kReset) : cut);
  }
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
  std::string text = absl::StrFormat("node %.0f  %s %s weights, %s KV, %s free of %s", number_at(node, "id"), bar(weights, bound, total), bytes(weights),
                                     bytes(bound), bytes(number_at(node, "free")), bytes(total));
  absl::StrAppendFormat(&text, "   fragmentation %.0f %%", number_at(node, "kv_fragmentation") * 100);
  if (node.contains("alpha")) absl::StrAppendFormat(&text, "   alpha %.2f", number_at(node, "alpha"));
  out.line(text);
  if (number_at(node, "host_memory") <= 0) return;
  out.line(absl::StrFormat("        host tier: %s KV of %s; %s went out, %s came back", bytes(number_at(node, "host_kv")),
                           bytes(number_at(node, "host_memory")), bytes(number_at(node, "kv_bytes_out")), bytes(number_at(node, "kv_bytes_in"))), kDim);
}

void add_model(const Json& model, const Lately& recent, Screen& out) {
  std::string state = text_at(model, "state");
  if (state == "loading") state = absl::StrFormat("loading %.0f %%", number_at(model, "progress") * 100);
  const double place = number_at(model, "next"), tokens = number_at(member(model, "attainment"), "tokens_counted");
  const double ever = tokens > 0 ? number_at(member(model, "attainment"), "tokens") : NAN;
  const Json slo = member(model, "slo");
  const double worst = std::isnan(recent.on_time) ? ever : recent.on_time;
  const char* style = text_at(model, "state") == "failed" ? kRed : !std::isnan(worst) && worst < kGoal ? kYellow
                      : text_at(model, "state") == "loaded" ? kGreen : text_at(model, "state") == "loading" || place > 0 ? "" : kDim;
  out.line(absl::StrFormat("%-26s %-12s %4s %4.0f %5.0f %8s %9s %8s %8s %9s %9s %10s %10s %6.0f", text_at(model, "id").substr(0, 26), state,
                           place > 0 ? absl::StrFormat("%.0f", place) : "-", number_at(model, "running"), number_at(model, "waiting"),
                           rate_text(recent.tokens_per_second), rate_text(recent.prompt_per_second), share_text(recent.on_time), share_text(ever),
                           seconds_text(number_at(slo, "ttft")), seconds_text(number_at(slo, "tbt")),
                           bytes(number_at(model, "weight_bytes")), bytes(number_at(model, "kv_bytes")), number_at(model, "loads")), style);
  const std::string error = text_at(model, "error");
  if (!error.empty() && text_at(model, "state") == "failed") out.line("    " + error, kRed);
}

}  // namespace

std::string top_screen(const Json& now, const Json& before, const TopScreen& screen) {
  Screen out(screen);
  double served = 0, hidden = 0;
  for (const Json& model : list_at(now, "models")) {
    served += number_at(model, "switches_served");
    hidden += number_at(model, "switches_hidden");
  }
  out.line(absl::StrFormat("Shoal at %s   %.0f requests   %.0f switches in the last minute%s%s", screen.server, number_at(now, "requests"),
                           number_at(now, "switches_last_minute"), served > 0 ? absl::StrFormat(", %.0f %% of all hidden", hidden / served * 100) : "",
                           now.is_object() && now.value("draining", Json(false)) == Json(true) ? "   DRAINING" : ""), kBold);
  for (const Json& node : list_at(now, "nodes")) add_node(node, out);
  out.line("");
  out.line(absl::StrFormat("%-26s %-12s %4s %4s %5s %8s %9s %8s %8s %9s %9s %10s %10s %6s", "MODEL", "STATE", "NEXT", "RUN", "WAIT", "TOK/S", "PROMPT/S",
                           "ON TIME", "EVER", "TTFT", "TBT", "WEIGHTS", "KV", "LOADS"), kBold);
  for (const Json& model : sorted_models(now)) add_model(model, lately(model, now, before), out);
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
