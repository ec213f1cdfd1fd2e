#include "sim/costs.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <limits>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "base/check.h"
#include "workload/views.h"

namespace shoal {
namespace {

constexpr size_t kRowsMax = 1'000'000;
constexpr std::string_view kCostsHeader = "model,gpu,prefill_s,prefill_token_s,prefill_square_s,decode_s,decode_context_s,decode_sequence_s,decode_by_sequences";
constexpr double kTokensMax = 4096, kSequencesMax = 100;  // of a point that a fit takes

double solve3(std::array<std::array<double, 4>, 3> m, unsigned mask, std::array<double, 3>& x) {
  for (size_t i = 0; i < 3; ++i) {
    if (mask >> i & 1) continue;
    for (size_t j = 0; j < 4; ++j) m[i][j] = 0;
    for (size_t j = 0; j < 3; ++j) m[j][i] = 0;
    m[i][i] = 1;
  }
  for (size_t i = 0; i < 3; ++i) {
    if (std::abs(m[i][i]) < 1e-300) return std::numeric_limits<double>::quiet_NaN();
    for (size_t k = 0; k < 3; ++k) {
      if (k == i) continue;
      const double factor = m[k][i] / m[i][i];
      for (size_t j = i; j < 4; ++j) m[k][j] -= factor * m[i][j];
    }
  }
  for (size_t i = 0; i < 3; ++i) x[i] = m[i][3] / m[i][i];
  return 0;
}

double on_plane(const std::array<double, 3>& x, const Sample& s) { return x[0] + x[1] * s.a + x[2] * s.b; }

double squared_error(std::span<const Sample> samples, const std::array<double, 3>& x) {
  double sum = 0;
  for (const Sample& s : samples) sum += std::pow(s.y - on_plane(x, s), 2);
  return sum;
}

struct Quality {
  double r2 = 0, relative_error = 0;
};
// `predict(sample)`: its seconds, by the fit.
template <typename Predict>
Quality quality_of(std::span<const Sample> samples, const Predict& predict) {
  double mean = 0, total = 0, squares = 0, relative = 0;
  for (const Sample& s : samples) mean += s.y / static_cast<double>(samples.size());
  for (const Sample& s : samples) {
    const double error = s.y - predict(s);
    total += std::pow(s.y - mean, 2);
    squares += std::pow(error, 2);
    relative += std::abs(error) / s.y;
  }
  return {total > 0 ? 1 - squares / total : 0, relative / static_cast<double>(samples.size())};
}

struct ProfilePoints {
  std::vector<Sample> prefill, decode;
  uint32_t left_out = 0;
};
using Profiles = std::map<std::pair<std::string, std::string>, ProfilePoints>;

template <size_t kCells>
Status split(std::string_view line, std::array<std::string_view, kCells>& cells) {
  for (size_t i = 0; i < kCells; ++i) {
    const size_t comma = i + 1 < kCells ? line.find(',') : std::string_view::npos;
    if (comma == std::string_view::npos && i + 1 < kCells) return invalid_argument("has ", i + 1, " of ", kCells, " cells");
    cells[i] = line.substr(0, comma);
    line.remove_prefix(comma == std::string_view::npos ? line.size() : comma + 1);
  }
  return OkStatus();
}

Status positive(std::string_view cell, double most, double& out) {
  const auto value = number_in<double>(without_blanks(cell));
  if (!value || !(*value > 0) || *value > most) return invalid_argument("'", own(cell), "' is not a positive number");
  out = *value;
  return OkStatus();
}

// Calls `take` with every line after the header, which must be `header`.
Status each_row(std::string_view csv, std::string_view header, const std::function<Status(std::string_view)>& take) {
  for (size_t line = 1; !csv.empty(); ++line) {
    const size_t end = std::min(csv.find('\n'), csv.size());
    const std::string_view row = without_blanks(csv.substr(0, end));
    csv.remove_prefix(std::min(end + 1, csv.size()));
    if (line > kRowsMax) return invalid_argument("more than ", kRowsMax, " lines");
    if (line == 1) {
      if (row != header) return invalid_argument("line 1: must be '", own(header), "'");
    } else if (!row.empty()) {
      RETURN_IF_ERROR(annotate(take(row), absl::StrCat("line ", line)));
    }
  }
  return OkStatus();
}

Status add_row(std::string_view line, Profiles& profiles) {
  std::array<std::string_view, 6> cells;
  RETURN_IF_ERROR(split(line, cells));
  std::array<double, 4> v{};
  for (size_t i = 0; i < v.size(); ++i) RETURN_IF_ERROR(positive(cells[i + 2], 1e9, v[i]));
  const auto [length, batch, prefill_ms, decode_ms] = v;
  ProfilePoints& points = profiles[{std::string(cells[0]), std::string(cells[1])}];
  if (length * batch > kTokensMax || batch > kSequencesMax) {
    ++points.left_out;
    return OkStatus();
  }
  points.prefill.push_back({length * batch, length * length * batch, prefill_ms / 1e3});
  points.decode.push_back({length * batch, batch, decode_ms / 1e3});
  return OkStatus();
}

FittedCost fit_points(const ProfilePoints& points) {
  FittedCost fitted;
  const auto p = fit_plane(points.prefill), d = fit_plane(points.decode);
  fitted.cost = {p[0], p[1], p[2], d[0], d[1], d[2], {}};
  const auto quality = [](const std::vector<Sample>& samples, const auto& x) { return quality_of(samples, [&](const Sample& s) { return on_plane(x, s); }); };
  const Quality prefill = quality(points.prefill, p), decode = quality(points.decode, d);
  fitted.quality = {static_cast<uint32_t>(points.prefill.size()), points.left_out, prefill.r2, decode.r2, prefill.relative_error,
                    decode.relative_error};
  return fitted;
}

}  // namespace

StatusOr<std::vector<ModelShape>> parse_model_shapes(std::string_view csv) {
  std::vector<ModelShape> shapes;
  const auto take = [&](std::string_view row) -> Status {
    std::array<std::string_view, 5> cells;
    RETURN_IF_ERROR(split(row, cells));
    std::array<double, 4> v{};
    for (size_t i = 0; i < v.size(); ++i) RETURN_IF_ERROR(positive(cells[i + 1], 1e15, v[i]));
    shapes.push_back({std::string(cells[0]), v[0], static_cast<uint64_t>(v[1]), static_cast<uint64_t>(v[2]), static_cast<uint32_t>(std::min(v[3], 4e6))});
    return OkStatus();
  };
  RETURN_IF_ERROR(each_row(csv, "name,parameters,weight_bytes,kv_bytes_per_token,max_len", take));
  return shapes;
}

namespace {

bool decodes(const StepSlice& slice) { return slice.tokens.size() == 1 && slice.begin > 0; }

}  // namespace

double StepCost::decodes_seconds(uint32_t sequences, double context) const {
  const double read = decode_context_seconds * context;
  const auto& by = decode_by_sequences;
  if (by.empty()) return read + decode_seconds + decode_sequence_seconds * sequences;
  const auto next = std::lower_bound(by.begin(), by.end(), sequences, [](const auto& entry, uint32_t n) { return entry.first < n; });
  if (next == by.end()) return read + by.back().second + decode_sequence_seconds * (sequences - by.back().first);
  if (next == by.begin() || next->first == sequences) return read + next->second;
  const auto [fewer, seconds] = *std::prev(next);
  return read + seconds + (next->second - seconds) * (sequences - fewer) / (next->first - fewer);
}

// A chunk [begin, end) of a prompt has the share of len^2 that lies there: end^2 - begin^2.
Duration StepCost::of(const StepInput& input) const {
  double seconds = 0, context = 0;
  uint32_t prompts = 0, decoding = 0;
  for (const StepSlice& slice : input.slices) {
    const double begin = slice.begin, end = begin + static_cast<double>(slice.tokens.size());
    if (decodes(slice)) {
      ++decoding;
      context += end;
    } else {
      ++prompts;
      seconds += prefill_token_seconds * (end - begin) + prefill_square_seconds * (end * end - begin * begin);
    }
  }
  if (prompts == 0) return from_seconds(decodes_seconds(decoding, context));
  seconds += decode_context_seconds * context + decode_sequence_seconds * decoding;
  return from_seconds(seconds + std::max(prefill_seconds, decoding > 0 ? decode_seconds : 0));
}

std::array<double, 3> fit_plane(std::span<const Sample> samples) {
  CHECK(!samples.empty());
  double a_scale = 0, b_scale = 0;  // the terms differ by powers of ten
  for (const Sample& s : samples) a_scale = std::max(a_scale, s.a), b_scale = std::max(b_scale, s.b);
  a_scale = std::max(a_scale, 1e-12), b_scale = std::max(b_scale, 1e-12);
  std::array<std::array<double, 4>, 3> m{};
  for (const Sample& s : samples) {
    const std::array<double, 4> row = {1, s.a / a_scale, s.b / b_scale, s.y};
    for (size_t i = 0; i < 3; ++i) {
      for (size_t j = 0; j < 4; ++j) m[i][j] += row[i] * row[j];
    }
  }
  std::array<double, 3> best{};
  double best_error = std::numeric_limits<double>::infinity();
  for (unsigned mask = 1; mask < 8; ++mask) {  // the best without a negative term is the best of one of these choices
    std::array<double, 3> x{};
    if (std::isnan(solve3(m, mask, x)) || *std::min_element(x.begin(), x.end()) < 0) continue;
    x[1] /= a_scale, x[2] /= b_scale;
    const double error = squared_error(samples, x);
    if (error < best_error) best_error = error, best = x;
  }
  return best;
}

void SeenSteps::add(const StepInput& input, double seconds) {
  Sample prefill{0, 0, seconds}, decode{0, 0, seconds};
  for (const StepSlice& slice : input.slices) {
    const double begin = slice.begin, end = begin + static_cast<double>(slice.tokens.size());
    if (decodes(slice)) {
      decode.a += end, decode.b += 1;
    } else {
      prefill.a += end - begin, prefill.b += end * end - begin * begin;
    }
  }
  if (prefill.a == 0) decode_.push_back(decode);
  else with_prompts_.push_back({prefill, decode});
}

namespace {

constexpr double kFarOff = 3;  // times what a first fit says: the machine was elsewhere

std::vector<Sample> without_far_off(std::vector<Sample> samples) {
  const auto x = fit_plane(samples);
  std::erase_if(samples, [&](const Sample& s) { return s.y > kFarOff * on_plane(x, s); });
  return samples;
}

// Decodes of as many sequences differ by their context alone: what a token of it takes is found among those, and the rest
// is the mean for that many.
void fit_decodes(std::span<const Sample> samples, StepCost& cost) {
  struct Group {
    double count = 0, a = 0, y = 0;  // means
  };
  std::map<uint32_t, Group> groups;
  for (const Sample& s : samples) {
    Group& g = groups[static_cast<uint32_t>(s.b)];
    ++g.count, g.a += (s.a - g.a) / g.count, g.y += (s.y - g.y) / g.count;
  }
  double squares = 0, products = 0;
  for (const Sample& s : samples) {
    const Group& g = groups.at(static_cast<uint32_t>(s.b));
    squares += (s.a - g.a) * (s.a - g.a), products += (s.a - g.a) * (s.y - g.y);
  }
  cost.decode_context_seconds = squares > 0 ? std::max(products / squares, 0.0) : 0;
  std::vector<Sample> line;
  for (const Sample& s : samples) line.push_back({s.b, 0, s.y - cost.decode_context_seconds * s.a});
  const auto x = fit_plane(line);
  cost.decode_seconds = x[0], cost.decode_sequence_seconds = x[1];
  constexpr double kFew = 8;  // steps say little about their number of sequences
  cost.decode_by_sequences.clear();
  for (const auto& [sequences, g] : groups) {
    const double seconds = g.y - cost.decode_context_seconds * g.a;
    if (g.count >= kFew && seconds > 0) cost.decode_by_sequences.emplace_back(sequences, seconds);
  }
}

}  // namespace

StatusOr<FittedCost> SeenSteps::fit() const {
  constexpr size_t kLeast = 30;
  if (std::min(with_prompts_.size(), decode_.size()) < kLeast) {
    return absl::FailedPreconditionError(absl::StrCat("has ", with_prompts_.size(), " steps with prompts and ", decode_.size(), " of decodes alone; a fit needs ", kLeast,
                                                      " of each"));
  }
  FittedCost fitted;
  StepCost& cost = fitted.cost;
  const auto decode = without_far_off(decode_);
  fit_decodes(decode, cost);
  std::vector<Sample> prefill;
  for (Seen seen : with_prompts_) {  // what the decodes beside a prompt add is known by now
    seen.prompts.y -= cost.decode_context_seconds * seen.decodes.a + cost.decode_sequence_seconds * seen.decodes.b;
    if (seen.prompts.y > 0) prefill.push_back(seen.prompts);
  }
  if (prefill.empty()) return absl::FailedPreconditionError("steps with prompts took less than decodes beside them");
  prefill = without_far_off(std::move(prefill));
  const auto p = fit_plane(prefill);
  cost.prefill_seconds = p[0], cost.prefill_token_seconds = p[1], cost.prefill_square_seconds = p[2];
  const Quality of_p = quality_of(prefill, [&](const Sample& s) { return on_plane(p, s); });
  const Quality of_d = quality_of(decode, [&](const Sample& s) { return cost.decodes_seconds(static_cast<uint32_t>(s.b), s.a); });
  const size_t taken = prefill.size() + decode.size();
  fitted.quality = {static_cast<uint32_t>(taken), static_cast<uint32_t>(with_prompts_.size() + decode_.size() - taken), of_p.r2, of_d.r2, of_p.relative_error,
                    of_d.relative_error};
  return fitted;
}

std::string CostTable::to_csv() const {
  std::string out = absl::StrCat(std::string(kCostsHeader), "\n");
  for (const auto& [key, fitted] : entries_) {
    const StepCost& c = fitted.cost;
    absl::StrAppendFormat(&out, "%s,%s,%.9g,%.9g,%.9g,%.9g,%.9g,%.9g,", key.first, key.second, c.prefill_seconds, c.prefill_token_seconds,
                          c.prefill_square_seconds, c.decode_seconds, c.decode_context_seconds, c.decode_sequence_seconds);
    const char* blank = "";
    for (const auto& [sequences, seconds] : c.decode_by_sequences) absl::StrAppendFormat(&out, "%s%d:%.9g", std::exchange(blank, " "), sequences, seconds);
    out += "\n";
  }
  return out;
}

namespace {

// "1:0.005 2:0.0101 4:0.0116", or nothing.
Status read_by_sequences(std::string_view cell, StepCost& cost) {
  constexpr size_t kEntriesMax = 1024;
  auto& by = cost.decode_by_sequences;
  const std::vector<std::string> entries = absl::StrSplit(own(cell), ' ', absl::SkipWhitespace());
  for (const std::string_view entry : entries) {
    const size_t colon = std::min(entry.find(':'), entry.size());
    const auto sequences = number_in<uint32_t>(entry.substr(0, colon));
    const auto seconds = number_in<double>(entry.substr(std::min(colon + 1, entry.size())));
    const bool ascends = sequences && *sequences > (by.empty() ? 0 : by.back().first);
    if (!ascends || !seconds || !(*seconds > 0) || *seconds > 1e6 || by.size() == kEntriesMax) {
      return invalid_argument("'", own(entry), "' is not SEQUENCES:SECONDS, positive, with more sequences than the one before");
    }
    by.emplace_back(*sequences, *seconds);
  }
  return OkStatus();
}

}  // namespace

StatusOr<CostTable> CostTable::read(std::string_view csv) {
  CostTable table;
  RETURN_IF_ERROR(each_row(csv, kCostsHeader, [&](std::string_view row) -> Status {
    std::array<std::string_view, 9> cells;
    RETURN_IF_ERROR(split(row, cells));
    std::array<double, 6> x{};
    for (size_t i = 0; i < x.size(); ++i) {
      const auto value = number_in<double>(without_blanks(cells[i + 2]));
      if (!value || !(*value >= 0) || *value > 1e6) return invalid_argument("'", own(cells[i + 2]), "' is not a number of seconds");
      x[i] = *value;
    }
    if (x[0] + x[1] <= 0 || x[3] + x[5] <= 0) return invalid_argument("a step that takes no time");
    StepCost cost{x[0], x[1], x[2], x[3], x[4], x[5], {}};
    RETURN_IF_ERROR(read_by_sequences(cells[8], cost));
    table.entries_[{std::string(cells[0]), std::string(cells[1])}].cost = std::move(cost);
    return OkStatus();
  }));
  return table;
}

StatusOr<CostTable> CostTable::fit(std::string_view csv) {
  constexpr std::string_view kHeader = "model,gpu,prompt_tokens_per_request,batch_size,prefill_ms,decode_step_ms";
  if (csv.starts_with(kCostsHeader)) return read(csv);
  Profiles profiles;
  RETURN_IF_ERROR(each_row(csv, kHeader, [&](std::string_view row) { return add_row(row, profiles); }));
  CostTable table;
  for (const auto& [key, points] : profiles) {
    if (points.prefill.size() < 3) {
      return invalid_argument("model '", key.first, "' on '", key.second, "' has ", points.prefill.size(), " points within the limits of a fit; it needs 3");
    }
    table.entries_[key] = fit_points(points);
  }
  if (table.entries_.empty()) return invalid_argument("holds no profile");
  return table;
}

const FittedCost* CostTable::find(std::string_view model, std::string_view hardware) const {
  const auto found = entries_.find({std::string(model), std::string(hardware)});
  return found == entries_.end() ? nullptr : &found->second;
}

StepCost roofline(const ModelShape& model, const Hardware& hardware, double launch_seconds) {
  constexpr double kArithmeticShare = 0.5, kMemoryShare = 0.6;
  const double flops = hardware.flops * kArithmeticShare, bytes = hardware.memory_bytes_per_second * kMemoryShare;
  const double read_weights = static_cast<double>(model.weight_bytes) / bytes;
  StepCost cost;
  cost.prefill_seconds = cost.decode_seconds = launch_seconds + read_weights;
  cost.prefill_token_seconds = 2 * model.parameters / flops;
  // Attention of a prompt: about as many multiplications per pair of tokens as a token has KV values, twice.
  cost.prefill_square_seconds = static_cast<double>(model.kv_bytes_per_token) / flops;
  cost.decode_sequence_seconds = cost.prefill_token_seconds;
  cost.decode_context_seconds = static_cast<double>(model.kv_bytes_per_token) / bytes;
  return cost;
}

StepCost tensor_cost(const ModelShape& model, const Hardware& device, const StepCost& alone, uint32_t degree) {
  if (degree == 1) return alone;
  const StepCost bound = roofline(model, device, 0);
  const double spared = 1 - 1.0 / degree;
  const auto divided = [&](double seconds, double shared) { return seconds - std::min(seconds, shared) * spared; };
  // 12 layers width^2 parameters, 128 times as wide as deep: within a quarter of Llama and Qwen from 6 to 72 billion.
  const double layers = std::cbrt(model.parameters / (12 * 128 * 128)), width = 128 * layers;
  const double launch = 2 * layers * device.peer_seconds;
  const double token = 2 * layers * 2 * spared * width * sizeof(uint16_t) / device.peer_bytes_per_second;
  StepCost cost = alone;
  cost.prefill_seconds = divided(alone.prefill_seconds, bound.prefill_seconds) + launch;
  cost.prefill_token_seconds = divided(alone.prefill_token_seconds, bound.prefill_token_seconds) + token;
  cost.prefill_square_seconds = divided(alone.prefill_square_seconds, bound.prefill_square_seconds);
  cost.decode_seconds = divided(alone.decode_seconds, bound.decode_seconds) + launch;
  cost.decode_context_seconds = divided(alone.decode_context_seconds, bound.decode_context_seconds);
  cost.decode_sequence_seconds = divided(alone.decode_sequence_seconds, bound.decode_sequence_seconds) + token;
  for (auto& [sequences, seconds] : cost.decode_by_sequences) {
    seconds = divided(seconds, bound.decode_seconds + sequences * bound.decode_sequence_seconds) + launch + sequences * token;
  }
  return cost;
}

}  // namespace shoal
