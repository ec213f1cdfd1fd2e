#include "bench/grid_report.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <functional>
#include <limits>
#include <map>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"

namespace shoal {
namespace {

constexpr size_t kWorstShown = 15;

struct Sum {
  size_t points = 0, lost = 0, ahead = 0, surely_lost = 0;
  double gain = 0, worst = 0, best = 0;
  std::vector<double> on_time;

  void add(const GridPoint& p) {
    ++points;
    lost += p.gain() < -kAlike;
    surely_lost += p.gain() + 2 * p.gain_error() < -kAlike;  // false where the error is not known
    ahead += p.gain() > kAlike;
    gain += p.gain();
    worst = std::min(worst, p.gain());
    best = std::max(best, p.gain());
    on_time.resize(p.scores.size());
    for (size_t i = 0; i < on_time.size(); ++i) on_time[i] += p.scores[i].on_time;
  }
};

std::string row(const std::string& name, const Sum& s) {
  std::string out = absl::StrFormat("%-26s %6d %6d %6d %+8.3f %+8.3f %+8.3f |", name, s.points, s.ahead, s.lost, s.gain / static_cast<double>(s.points), s.worst, s.best);
  for (const double share : s.on_time) absl::StrAppendFormat(&out, " %8.3f", share / static_cast<double>(s.points));
  return out + "\n";
}

std::string head(const std::string& name, const std::vector<std::string>& policies) {
  std::string out = absl::StrFormat("\n%-26s %6s %6s %6s %8s %8s %8s |", name, "points", "ahead", "lost", "mean", "worst", "best");
  for (const std::string& policy : policies) absl::StrAppendFormat(&out, " %8s", policy);
  return out + "\n";
}

using Key = std::function<std::string(const GridPoint&)>;

std::string by(const char* name, const std::vector<GridPoint>& points, const std::vector<std::string>& policies, const Key& key) {
  std::map<std::string, Sum> sums;
  for (const GridPoint& p : points) sums[key(p)].add(p);
  std::string out = head(name, policies);
  for (const auto& [value, sum] : sums) out += row(absl::StrCat("  ", value), sum);
  return out;
}

std::string number(double x) { return absl::StrFormat("%7g", x); }

bool worse(const PlaceScore& a, const PlaceScore& b) { return a.on_time < b.on_time; }

// Who is starved, and for how long: the longest silences of the points, by policy, whose models are so many.
std::string silences(const std::vector<GridPoint>& points, const std::vector<std::string>& policies) {
  struct Row {
    std::vector<std::vector<double>> seconds;  // [policies][points]
    double of_bound = 0;
  };
  std::map<int, Row> by_models;
  const auto bounded = static_cast<size_t>(std::find(policies.begin(), policies.end(), "token") - policies.begin());  // no other has a bound
  for (const GridPoint& p : points) {
    Row& row = by_models[static_cast<int>(p.place.models)];
    row.seconds.resize(policies.size());
    for (size_t i = 0; i < policies.size(); ++i) row.seconds[i].push_back(p.scores[i].silent_s);
    if (bounded < policies.size()) row.of_bound = std::max(row.of_bound, p.scores[bounded].silent_s / silence_bound(p.place));
  }
  std::string out = absl::StrFormat("\nThe longest that a model with requests got no token, s: median of the points / the worst\n%-12s %6s", "models", "points");
  for (const std::string& policy : policies) absl::StrAppendFormat(&out, " %15s", policy);
  out += bounded < policies.size() ? "  token of its bound\n" : "\n";
  for (auto& [models, row] : by_models) {
    absl::StrAppendFormat(&out, "%12d %6d", models, row.seconds.front().size());
    for (std::vector<double>& seconds : row.seconds) {
      std::sort(seconds.begin(), seconds.end());
      absl::StrAppendFormat(&out, " %15s", absl::StrFormat("%.1f / %.1f", seconds[seconds.size() / 2], seconds.back()));
    }
    out += bounded < policies.size() ? absl::StrFormat("  %.2f\n", row.of_bound) : "\n";
  }
  return out;
}

std::string point_line(const GridPoint& p) {
  std::string out = absl::StrFormat("%+.3f", p.gain());
  if (const double error = p.gain_error(); !std::isnan(error)) absl::StrAppendFormat(&out, " +-%.3f", error);
  absl::StrAppendFormat(&out, "  load %-4g", p.load);
  for (const PlaceScore& score : p.scores) absl::StrAppendFormat(&out, " %.3f", score.on_time);
  return absl::StrCat(out, "  ", p.apart ? "apart " : "", p.place.seed, ": ", to_string(p.place), "\n");
}

}  // namespace

const PlaceScore& GridPoint::best_other() const { return *std::max_element(scores.begin() + 1, scores.end(), worse); }
double GridPoint::gain_error() const {
  const std::vector<double>&ours = scores.front().of_draws, &theirs = best_other().of_draws;
  if (ours.size() < 2 || ours.size() != theirs.size()) return std::numeric_limits<double>::quiet_NaN();
  const auto n = static_cast<double>(ours.size());
  double squares = 0;
  for (size_t i = 0; i < ours.size(); ++i) squares += std::pow(ours[i] - theirs[i] - gain(), 2);
  return std::sqrt(squares / (n - 1) / n);
}
size_t GridPoint::winner() const { return static_cast<size_t>(std::max_element(scores.begin(), scores.end(), worse) - scores.begin()); }

std::string grid_table(GridResult& result, const std::vector<std::string>& policies, bool every_point) {
  std::vector<GridPoint>& points = result.points;
  std::stable_sort(points.begin(), points.end(), [](const GridPoint& a, const GridPoint& b) { return a.gain() < b.gain(); });
  std::string out = absl::StrFormat("SIMULATED: share of tokens on time; gain of %s over the best of the others at each point; ahead and lost: by more than %g\n",
                                    policies.front(), kAlike);
  if (result.stopped) out += "Stopped before the end: these are the points measured so far.\n";
  out += head("", policies);
  for (const bool apart : {false, true}) {
    Sum sum;
    for (const GridPoint& p : points) {
      if (p.apart == apart) sum.add(p);
    }
    if (sum.points > 0) out += row(apart ? "seeds kept apart" : "seeds tuned on", sum);
    if (sum.surely_lost > 0) absl::StrAppend(&out, "  of the lost by more than two standard errors of the draws: ", sum.surely_lost, "\n");
  }
  if (!points.empty()) {
    out += by("load", points, policies, [](const GridPoint& p) { return number(p.load); });
    out += by("deadlines", points, policies, [](const GridPoint& p) { return std::string(p.place.strictness); });
    out += by("tokens of an answer", points, policies, [](const GridPoint& p) { return number(p.place.output_mean); });
    out += by("tokens of a prompt", points, policies, [](const GridPoint& p) { return number(p.place.input_mean); });
    out += by("device", points, policies, [](const GridPoint& p) { return p.place.hardware->name; });
    out += by("models", points, policies, [](const GridPoint& p) { return number(p.place.models); });
    out += by("models at once", points, policies, [](const GridPoint& p) { return number(p.place.rooms); });
    out += by("speed of loads", points, policies, [](const GridPoint& p) { return number(p.place.load_factor); });
    out += by("Zipf", points, policies, [](const GridPoint& p) { return number(p.place.zipf); });
    out += by("CV of the gaps", points, policies, [](const GridPoint& p) { return number(p.place.cv); });
    out += silences(points, policies);
  }
  absl::StrAppend(&out, "\n", every_point ? "Every point" : "The worst points", ":\n");
  for (size_t i = 0; i < points.size() && (every_point || i < kWorstShown); ++i) out += point_line(points[i]);
  if (!result.out_of_reach.empty()) absl::StrAppend(&out, "\nOut of reach of any policy, and left out: ", result.out_of_reach.size(), " places\n");
  for (const std::string& why : result.out_of_reach) absl::StrAppend(&out, "  ", why, "\n");
  for (const std::string& why : result.broken) absl::StrAppend(&out, "BROKEN: ", why, "\n");
  return out;
}

std::string grid_csv(const GridResult& result, const std::vector<std::string>& policies) {
  std::string out = "seed,apart,device,devices,models,rooms,load_speed,deadlines,input,output,zipf,cv,unlike,load,requests_per_second";
  for (const std::string& policy : policies) absl::StrAppend(&out, ",", policy);
  for (const std::string& policy : policies) absl::StrAppend(&out, ",silent_s ", policy);
  out += "\n";
  for (const GridPoint& p : result.points) {
    const Place& l = p.place;
    absl::StrAppend(&out, l.seed, ",", p.apart, ",", l.hardware->name, ",", l.devices, ",", l.models, ",", l.rooms, ",", l.load_factor, ",", l.strictness, ",");
    absl::StrAppend(&out, l.input_mean, ",", l.output_mean, ",", l.zipf, ",", l.cv, ",", l.unlike.to_string("+"), ",", p.load);
    absl::StrAppendFormat(&out, ",%.17g", p.requests_per_second);
    for (const PlaceScore& score : p.scores) absl::StrAppendFormat(&out, ",%.4f", score.on_time);
    for (const PlaceScore& score : p.scores) absl::StrAppendFormat(&out, ",%.3f", score.silent_s);
    out += "\n";
  }
  return out;
}

StatusOr<std::vector<KnownPoint>> read_grid_csv(const std::string& path, const std::vector<std::string>& policies, const Unlike& unlike) {
  constexpr size_t kSeed = 0, kUnlikeIn = 12, kLoad = 13, kRate = 14, kShares = 15;  // columns
  std::ifstream file(path);
  std::string line;
  std::vector<KnownPoint> points;
  for (size_t number = 1; std::getline(file, line); ++number) {
    const std::vector<std::string> cells = absl::StrSplit(line, ',');
    const auto wrong = [&](absl::string_view what) { return absl::InvalidArgumentError(absl::StrCat(path, ":", number, ": ", what, "; give a file that --csv wrote for the same --policies and --unlike")); };
    if (cells.size() != kShares + 2 * policies.size()) return wrong("another number of columns");
    if (number == 1) {
      if (!std::equal(policies.begin(), policies.end(), cells.begin() + kShares)) return wrong("other policies");
      continue;
    }
    if (cells[kUnlikeIn] != unlike.to_string("+")) return wrong("its models are unlike in other things: \"" + cells[kUnlikeIn] + "\"");
    KnownPoint& point = points.emplace_back();
    point.scores.resize(policies.size());
    bool read = absl::SimpleAtoi(cells[kSeed], &point.place_seed) && absl::SimpleAtod(cells[kLoad], &point.load) && absl::SimpleAtod(cells[kRate], &point.requests_per_second);
    for (size_t i = 0; i < policies.size(); ++i) {
      read = read && absl::SimpleAtod(cells[kShares + i], &point.scores[i].on_time) && absl::SimpleAtod(cells[kShares + policies.size() + i], &point.scores[i].silent_s);
    }
    if (!read) return wrong("not a number");
  }
  if (points.empty()) return absl::InvalidArgumentError(path + ": no points in it");
  return points;
}

namespace {

constexpr int kWidth = 250, kHeight = 170, kLeft = 50, kTop = 70;
constexpr const char* kColours[] = {"#2b6cb0", "#dd6b20", "#38a169", "#805ad5"};
constexpr const char* kRows[] = {"strict", "normal", "lax"};
struct Band {
  const char* name;
  double below;
};
constexpr Band kBands[] = {{"answers of up to 32 tokens", 33}, {"64 to 256 tokens", 257}, {"512 to 2,000 tokens", 1e9}};

double x_of(double load) { return kWidth * std::log(load / 0.17) / std::log(3.5 / 0.17); }
double y_of(double gain) { return kHeight * (0.5 - std::clamp(gain, -0.6, 0.6) / 1.2); }

std::string panel(const std::vector<const GridPoint*>& points, const std::string& title) {
  std::string out = absl::StrFormat("<text x='%d' y='-6' class='t'>%s</text><rect width='%d' height='%d' class='b'/>", kWidth / 2, title, kWidth, kHeight);
  for (const double gain : {-0.5, 0.0, 0.5}) {
    absl::StrAppendFormat(&out, "<line x1='0' x2='%d' y1='%.1f' y2='%.1f' class='%s'/><text x='-4' y='%.1f' class='y'>%+g</text>", kWidth, y_of(gain), y_of(gain),
                          gain == 0 ? "z" : "g", y_of(gain) + 3, gain);
  }
  for (const double load : {0.2, 0.5, 1.0, 2.0}) {
    absl::StrAppendFormat(&out, "<line x1='%.1f' x2='%.1f' y1='0' y2='%d' class='g'/><text x='%.1f' y='%d' class='t'>%g</text>", x_of(load), x_of(load), kHeight, x_of(load),
                          kHeight + 12, load);
  }
  for (const GridPoint* p : points) {
    const double gain = p->gain();
    const char* colour = std::abs(gain) <= kAlike ? "#a0aec0" : kColours[p->winner()];
    const double aside = static_cast<double>(p->place.seed % 7) - 3;  // points of one load beside each other
    absl::StrAppendFormat(&out, "<circle cx='%.1f' cy='%.1f' r='3' fill='%s' stroke='%s'><title>%+.3f at %s</title></circle>", x_of(p->load) + aside, y_of(gain),
                          p->apart ? "none" : colour, colour, gain, to_string(p->place));
  }
  return out;
}

}  // namespace

std::string grid_svg(const GridResult& result, const std::vector<std::string>& policies) {
  const int width = kLeft + 3 * (kWidth + 50), height = kTop + 3 * (kHeight + 50);
  std::string out = absl::StrFormat("<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 %d %d' font-family='sans-serif' font-size='11'><style>.b{fill:none;stroke:#718096}"
                                    ".g{stroke:#e2e8f0}.z{stroke:#718096}.t{text-anchor:middle}.y{text-anchor:end}</style><rect width='%d' height='%d' fill='white'/>",
                                    width, height, width, height);
  absl::StrAppendFormat(&out, "<text x='%d' y='18' font-size='14'>Simulated: tokens on time, %s less the best of the others, by load over capacity</text>", kLeft, policies.front());
  int x = kLeft;
  for (size_t i = 0; i < policies.size(); ++i, x += 110) {
    absl::StrAppendFormat(&out, "<circle cx='%d' cy='34' r='4' fill='%s'/><text x='%d' y='38'>%s wins</text>", x + 5, kColours[i], x + 14, policies[i]);
  }
  absl::StrAppendFormat(&out, "<circle cx='%d' cy='34' r='4' fill='#a0aec0'/><text x='%d' y='38'>within %g; hollow: seeds kept apart</text>", x + 5, x + 14, kAlike);
  for (int r = 0; r < 3; ++r) {
    double from = 0;
    for (int c = 0; c < 3; ++c) {
      std::vector<const GridPoint*> points;
      for (const GridPoint& p : result.points) {
        if (p.place.strictness == std::string(kRows[r]) && p.place.output_mean >= from && p.place.output_mean < kBands[c].below) points.push_back(&p);
      }
      from = kBands[c].below;
      absl::StrAppendFormat(&out, "<g transform='translate(%d %d)'>%s</g>", kLeft + c * (kWidth + 50), kTop + r * (kHeight + 50),
                            panel(points, absl::StrCat(kRows[r], " deadlines, ", kBands[c].name)));
    }
  }
  return out + "</svg>\n";
}

}  // namespace shoal
