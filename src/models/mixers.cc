#include "models/mixers.h"

#include <algorithm>

namespace shoal {
namespace {

MatrixSpec rows_of(const std::string& name, uint32_t first, uint32_t rows, uint32_t stored, uint32_t columns) {
  return {.name = name, .outputs = rows, .columns = columns, .first_row = first, .stored_rows = stored};
}

// Channels [first, first + channels) of the weights of a convolution of `stored` channels, times `factor`: a vector per tap.
struct ConvolutionSpec {
  std::string name;
  uint32_t layer = 0, first = 0, channels = 0, stored = 0;
  bool bias = false, silu = true;
  double factor = 1.0;
};
StatusOr<ConvolutionPlaces> plan_convolution(const ModelConfig& c, WeightLayout& layout, const ConvolutionSpec& spec) {
  ConvolutionPlaces places{.layer = spec.layer, .channels = spec.channels, .first = spec.first, .silu = spec.silu};
  const uint32_t taps = c.recurrent->taps;
  for (uint32_t j = 0; j < taps; ++j) {
    ASSIGN_OR_RETURN(places.taps.emplace_back(),
                     layout.vector({.name = spec.name + ".weight", .size = spec.channels, .first = spec.first * taps + j, .step = taps, .stored = spec.stored * taps,
                                    .factor = static_cast<float>(spec.factor)}));
  }
  if (!spec.bias) return places;
  ASSIGN_OR_RETURN(places.bias, layout.vector({.name = spec.name + ".bias", .size = spec.channels, .first = spec.first, .stored = spec.stored}));
  return places;
}

StatusOr<RecurrencePlaces> plan_recurrence(const ModelConfig& c, WeightLayout& layout, const std::string& at, uint32_t layer, bool by_key) {
  const RecurrentConfig& r = *c.recurrent;
  const uint32_t times = by_key ? r.heads * r.key_dim : r.heads;
  RecurrencePlaces places{.layer = layer, .heads = r.heads, .key_heads = r.key_heads, .key_dim = r.key_dim, .value_dim = r.value_dim,
                          .tiled_keys = r.tiled_keys, .by_key = by_key};
  places.time_min = static_cast<float>(r.time_min);
  places.time_max = static_cast<float>(r.time_max);
  ASSIGN_OR_RETURN(places.rate, layout.vector({.name = at + "A_log", .size = r.heads, .stored = r.heads, .negative_exp = !r.rates_stored}));
  ASSIGN_OR_RETURN(places.time_bias, layout.vector({.name = at + "dt_bias", .size = times, .stored = times}));
  return places;
}

}  // namespace

// ---- gated delta net -------------------------------------------------------------------------------------------------------

StatusOr<DeltaNet> plan_delta_net(const ModelConfig& c, WeightLayout& layout, const std::string& at, uint32_t layer) {
  const RecurrentConfig& r = *c.recurrent;
  const uint32_t keys = r.key_heads * r.key_dim, values = r.heads * r.value_dim, hidden = c.hidden_size;
  DeltaNet net;
  if (layout.has(at + "in_proj_qkvz.weight")) {
    ASSIGN_OR_RETURN(net.mixed, layout.matrix({.name = at + "in_proj_qkvz", .outputs = 2 * keys + 2 * values, .columns = hidden}));
  } else {
    ASSIGN_OR_RETURN(net.inputs, layout.matrix({.name = at + "in_proj_qkv", .outputs = 2 * keys + values, .columns = hidden}));
    ASSIGN_OR_RETURN(net.gate, layout.matrix({.name = at + "in_proj_z", .outputs = values, .columns = hidden}));
  }
  if (layout.has(at + "in_proj_ba.weight")) {
    ASSIGN_OR_RETURN(net.times_betas, layout.matrix({.name = at + "in_proj_ba", .outputs = 2 * r.heads, .columns = hidden}));
  } else {
    ASSIGN_OR_RETURN(net.times, layout.matrix({.name = at + "in_proj_a", .outputs = r.heads, .columns = hidden}));
    ASSIGN_OR_RETURN(net.betas, layout.matrix({.name = at + "in_proj_b", .outputs = r.heads, .columns = hidden}));
  }
  const uint32_t channels = 2 * keys + values;
  ASSIGN_OR_RETURN(net.convolution, plan_convolution(c, layout, {.name = at + "conv1d", .layer = layer, .channels = channels, .stored = channels}));
  ASSIGN_OR_RETURN(net.recurrence, plan_recurrence(c, layout, at, layer, /*by_key=*/false));
  net.recurrence.delta = true;
  ASSIGN_OR_RETURN(net.norm, layout.vector(at + "norm.weight", r.value_dim));
  ASSIGN_OR_RETURN(net.out, layout.matrix({.name = at + "out_proj", .outputs = hidden, .columns = values, .chunk_unit = r.value_dim}));
  return net;
}

void run_delta_net(const Step& step, const ModelConfig& c, const DeltaNet& net) {
  const RecurrentConfig& r = *c.recurrent;
  const StepBuffers& b = step.at();
  const uint32_t keys = r.key_heads * r.key_dim, values = r.heads * r.value_dim, channels = 2 * keys + values;
  const uint32_t each = r.heads / r.key_heads, of_key = each * r.value_dim;
  if (net.mixed) {
    step.linear(b.h, {{&*net.mixed, b.raw}});                                              // [rows, key_heads, q k v z]
    step.split(b.raw, r.key_heads, {{r.key_dim, b.mixed, channels, 0}, {r.key_dim, b.mixed, channels, keys},
                                    {of_key, b.mixed, channels, 2 * keys}, {of_key, b.mixer_gate, values, 0}});
  } else {
    step.linear(b.h, {{&*net.inputs, b.mixed}, {&*net.gate, b.mixer_gate}});               // [rows, q k v], [rows, values]
  }
  if (net.times_betas) {
    step.linear(b.h, {{&*net.times_betas, b.raw}});                                        // [rows, key_heads, b a]
    step.split(b.raw, r.key_heads, {{each, b.betas, r.heads, 0}, {each, b.times, r.heads, 0}});
  } else {
    step.linear(b.h, {{&*net.times, b.times}, {&*net.betas, b.betas}});                    // [rows, heads]
  }
  step.convolve(net.convolution, {b.mixed, channels, 0}, {b.convolved, channels, 0});
  step.recur(net.recurrence, {.row = b.convolved, .stride = channels, .q = 0, .k = keys, .v = 2 * keys}, b.scanned);
  step.rms_norm(b.scanned, net.norm, c.norm_eps, b.scanned, r.heads);
  step.linear({Activation::kSilu, b.mixer_gate, b.scanned, b.scanned}, {{&net.out, b.x, true}});  // [rows, hidden]
}

// ---- Kimi delta attention --------------------------------------------------------------------------------------------------

StatusOr<KimiDelta> plan_kimi_delta(const ModelConfig& c, WeightLayout& layout, const std::string& at, uint32_t layer) {
  const RecurrentConfig& r = *c.recurrent;
  const uint32_t width = r.heads * r.value_dim, hidden = c.hidden_size;
  KimiDelta delta;
  const std::pair<const char*, std::pair<MatrixPlace*, ConvolutionPlaces*>> inputs[] = {
      {"q", {&delta.q, &delta.q_convolution}}, {"k", {&delta.k, &delta.k_convolution}}, {"v", {&delta.v, &delta.v_convolution}}};
  uint32_t first = 0;
  for (const auto& [name, places] : inputs) {
    ASSIGN_OR_RETURN(*places.first, layout.matrix({.name = absl::StrCat(at, name, "_proj"), .outputs = width, .columns = hidden}));
    ASSIGN_OR_RETURN(*places.second, plan_convolution(c, layout, {.name = absl::StrCat(at, name, "_conv1d"), .layer = layer, .channels = width, .stored = width}));
    places.second->in_state = first;
    first += width;
  }
  ASSIGN_OR_RETURN(delta.time_down, layout.matrix({.name = at + "f_a_proj", .outputs = r.value_dim, .columns = hidden}));
  ASSIGN_OR_RETURN(delta.time_up, layout.matrix({.name = at + "f_b_proj", .outputs = width, .columns = r.value_dim}));
  ASSIGN_OR_RETURN(delta.gate_down, layout.matrix({.name = at + "g_a_proj", .outputs = r.value_dim, .columns = hidden}));
  ASSIGN_OR_RETURN(delta.gate_up, layout.matrix({.name = at + "g_b_proj", .outputs = width, .columns = r.value_dim}));
  ASSIGN_OR_RETURN(delta.betas, layout.matrix({.name = at + "b_proj", .outputs = r.heads, .columns = hidden}));
  ASSIGN_OR_RETURN(delta.recurrence, plan_recurrence(c, layout, at, layer, /*by_key=*/true));
  delta.recurrence.delta = true;
  ASSIGN_OR_RETURN(delta.norm, layout.vector(at + "o_norm.weight", r.value_dim));
  ASSIGN_OR_RETURN(delta.out, layout.matrix({.name = at + "o_proj", .outputs = hidden, .columns = width, .chunk_unit = r.value_dim}));
  return delta;
}

void run_kimi_delta(const Step& step, const ModelConfig& c, const KimiDelta& delta) {
  const RecurrentConfig& r = *c.recurrent;
  const StepBuffers& b = step.at();
  const uint32_t width = r.heads * r.value_dim, channels = 3 * width;
  uint32_t at = 0;
  for (const auto& [matrix, convolution] : {std::pair{&delta.q, &delta.q_convolution}, {&delta.k, &delta.k_convolution}, {&delta.v, &delta.v_convolution}}) {
    step.linear(b.h, {{matrix, b.mixed}});                                                 // [rows, heads, head_dim]
    step.convolve(*convolution, {b.mixed, width, 0}, {b.convolved, channels, at});
    at += width;
  }
  step.linear(b.h, {{&delta.time_down, b.raw}});                                           // [rows, head_dim]
  step.linear(b.raw, {{&delta.time_up, b.times}});                                         // [rows, heads, head_dim]
  step.linear(b.h, {{&delta.gate_down, b.raw}, {&delta.betas, b.betas}});
  step.linear(b.raw, {{&delta.gate_up, b.mixer_gate}});
  step.recur(delta.recurrence, {.row = b.convolved, .stride = channels, .q = 0, .k = width, .v = 2 * width}, b.scanned);
  step.rms_norm(b.scanned, delta.norm, c.norm_eps, b.scanned, r.heads);
  step.linear({Activation::kSigmoid, b.mixer_gate, b.scanned, b.scanned}, {{&delta.out, b.x, true}});  // [rows, hidden]
}

// ---- Mamba 2 ---------------------------------------------------------------------------------------------------------------

StatusOr<Mamba> plan_mamba(const ModelConfig& c, WeightLayout& layout, const std::string& at, uint32_t layer) {
  const RecurrentConfig& r = *c.recurrent;
  const uint32_t inner = r.heads * r.value_dim, state = r.key_heads * r.key_dim, channels = inner + 2 * state;
  const uint32_t stored = inner + channels + r.heads;
  Mamba mamba;
  ASSIGN_OR_RETURN(mamba.gate, layout.matrix(rows_of(at + "in_proj", 0, inner, stored, c.hidden_size)));
  ASSIGN_OR_RETURN(mamba.inputs, layout.matrix(rows_of(at + "in_proj", inner, channels, stored, c.hidden_size)));
  ASSIGN_OR_RETURN(mamba.times, layout.matrix(rows_of(at + "in_proj", inner + channels, r.heads, stored, c.hidden_size)));
  ConvolutionSpec part{.name = at + "conv1d", .layer = layer, .channels = channels, .stored = channels, .bias = r.convolution_bias};
  const auto add = [&](uint32_t count, double factor) -> Status {
    part.channels = count;
    part.factor = factor;
    ASSIGN_OR_RETURN(mamba.convolutions.emplace_back(), plan_convolution(c, layout, part));
    mamba.convolutions.back().in_state = part.first;
    part.first += count;
    return OkStatus();
  };
  const RecurrentScales& s = r.scales;
  if (s.plain()) {
    RETURN_IF_ERROR(add(channels, 1.0));
  } else {
    RETURN_IF_ERROR(add(inner, s.in * s.values));
    RETURN_IF_ERROR(add(state, s.in * s.keys));
    RETURN_IF_ERROR(add(state, s.in * s.queries));
  }
  ASSIGN_OR_RETURN(mamba.recurrence, plan_recurrence(c, layout, at, layer, /*by_key=*/false));
  ASSIGN_OR_RETURN(mamba.recurrence.skip, layout.vector({.name = at + "D", .size = r.heads, .stored = r.heads}));
  if (r.normed) {
    ASSIGN_OR_RETURN(mamba.norm, layout.vector({.name = at + "norm.weight", .size = inner, .stored = inner}));
  }
  ASSIGN_OR_RETURN(mamba.out, layout.matrix({.name = at + "out_proj", .outputs = c.hidden_size, .columns = inner, .chunk_unit = r.value_dim}));
  return mamba;
}

void run_mamba(const Step& step, const ModelConfig& c, const Mamba& mamba, double factor) {
  const RecurrentConfig& r = *c.recurrent;
  const RecurrentScales& s = r.scales;
  const StepBuffers& b = step.at();
  const uint32_t inner = r.heads * r.value_dim, state = r.key_heads * r.key_dim, channels = inner + 2 * state;
  step.linear(b.h, {{&mamba.gate, b.mixer_gate}, {&mamba.inputs, b.mixed}, {&mamba.times, b.times}});  // [rows, inner], [rows, x B C], [rows, heads]
  if (!s.plain()) {
    step.scale(b.mixer_gate, static_cast<float>(s.in * s.gate), inner);
    step.scale(b.times, static_cast<float>(s.in * s.times), r.heads);
  }
  for (const ConvolutionPlaces& part : mamba.convolutions) step.convolve(part, {b.mixed, channels, part.in_state}, {b.convolved, channels, part.in_state});
  step.recur(mamba.recurrence, {.row = b.convolved, .stride = channels, .q = inner + state, .k = inner, .v = 0}, b.scanned);
  if (mamba.norm) {
    step.activate(Activation::kSilu, b.mixer_gate, b.scanned, inner, b.scanned);
    step.group_norm(b.scanned, *mamba.norm, c.norm_eps, b.scanned, r.key_heads);
    step.linear(b.scanned, {{&mamba.out, b.y}});                                           // [rows, hidden]
  } else {
    step.linear({Activation::kSilu, b.mixer_gate, b.scanned, b.scanned}, {{&mamba.out, b.y}});
  }
  step.add_scaled(b.y, static_cast<float>(factor), b.x);
}

// ---- short convolution -----------------------------------------------------------------------------------------------------

StatusOr<ShortConvolution> plan_short_convolution(const ModelConfig& c, WeightLayout& layout, const std::string& at, uint32_t layer) {
  const uint32_t hidden = c.hidden_size;
  ShortConvolution block;
  ASSIGN_OR_RETURN(block.before, layout.matrix(rows_of(at + "in_proj", 0, hidden, 3 * hidden, hidden)));
  ASSIGN_OR_RETURN(block.after, layout.matrix(rows_of(at + "in_proj", hidden, hidden, 3 * hidden, hidden)));
  ASSIGN_OR_RETURN(block.inputs, layout.matrix(rows_of(at + "in_proj", 2 * hidden, hidden, 3 * hidden, hidden)));
  ASSIGN_OR_RETURN(block.convolution, plan_convolution(c, layout, {.name = at + "conv", .layer = layer, .channels = hidden, .stored = hidden, .silu = false}));
  ASSIGN_OR_RETURN(block.out, layout.matrix({.name = at + "out_proj", .outputs = hidden, .columns = hidden}));
  return block;
}

void run_short_convolution(const Step& step, const ModelConfig& c, const ShortConvolution& block) {
  const StepBuffers& b = step.at();
  step.linear(b.h, {{&block.before, b.mixer_gate}, {&block.after, b.scanned}, {&block.inputs, b.mixed}});  // [rows, hidden]
  step.activate(Activation::kProduct, b.mixer_gate, b.mixed, c.hidden_size, b.mixed);
  step.convolve(block.convolution, {b.mixed, c.hidden_size, 0}, {b.convolved, c.hidden_size, 0});
  step.linear({Activation::kProduct, b.scanned, b.convolved, b.convolved}, {{&block.out, b.x, true}});
}

}  // namespace shoal
