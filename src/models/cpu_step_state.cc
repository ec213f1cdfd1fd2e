// Layers with a state on the host's processor. Threads split channels, heads and values; the tokens of a sequence come one after the
// other. Each slice reads the state before its first token and writes the one after its last, and, where asked, a copy on the way.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/bytes.h"
#include "kernels/scalar_math.h"
#include "models/cpu_step.h"

namespace shoal {
namespace {

constexpr uint32_t kTimesAtOnce = 64;

// log(1 + e^x) of each.
void softplus(std::span<double> x) {
  double e[kTimesAtOnce];
  const std::span<double> some(e, x.size());
  for (size_t i = 0; i < x.size(); ++i) e[i] = std::fmin(std::fmax(x[i], -600.0), 20.0);
  portable_exp(some);
  for (double& one : some) one += 1.0;
  portable_log(some);
  for (size_t i = 0; i < x.size(); ++i) x[i] = x[i] > 20 ? x[i] : e[i];
}

// 1 / (1 + e^-x) of each.
void sigmoid(float* x, uint32_t count) {
  double e[kTimesAtOnce];
  for (uint32_t first = 0; first < count; first += kTimesAtOnce) {
    const std::span<double> some(e, std::min(kTimesAtOnce, count - first));
    for (size_t i = 0; i < some.size(); ++i) e[i] = -std::fmin(std::fmax(double{x[first + i]}, -600.0), 600.0);
    portable_exp(some);
    for (size_t i = 0; i < some.size(); ++i) x[first + i] = static_cast<float>(1.0 / (1.0 + e[i]));
  }
}

constexpr double kKeyEps = 1e-6;  // beside the squared length of keys and queries

float* at_place(std::span<const DeviceAddress> blocks, const StatePlace& place) {
  return CpuDevice::at((blocks[place.block] + place.offset).as<float>());
}

// Calls body(rows [first, first + rows) of the batch, state before, state after) for each part of the slice that has a state written
// at its end; its rows begin at `first`.
template <typename Body>
void for_state_parts(const SequenceSlice& s, uint32_t first, const Body& body) {
  if (s.state.kept_rows == 0) return body(first, s.rows, s.state.before, s.state.after);
  body(first, s.state.kept_rows, s.state.before, s.state.kept);
  if (s.state.kept_rows < s.rows) body(first + s.state.kept_rows, s.rows - s.state.kept_rows, s.state.kept, s.state.after);
}

// What a row's recurrence is driven by: decays, betas, keys and queries of length 1, or values times their time.
void drive(const Kernels& kernels, const CpuWeights& weights, const StepBuffers& at, const RecurrencePlaces& p, const Step::RecurrenceInput& input, uint32_t row) {
  const uint32_t times = p.by_key ? p.heads * p.key_dim : p.heads, values = p.heads * p.value_dim;
  const float* const rate = weights.vector(p.rate);
  const float* const bias = weights.vector(p.time_bias);
  const float* const time = CpuDevice::at(at.times) + row * size_t{times};
  float* const decay = CpuDevice::at(at.decays) + row * size_t{times};
  float* const columns = CpuDevice::at(input.row) + row * size_t{input.stride};
  float* const beta = CpuDevice::at(at.betas) + row * size_t{p.heads};
  float* const timed = CpuDevice::at(at.timed) + row * size_t{values};
  for (uint32_t first = 0; first < times; first += kTimesAtOnce) {
    const uint32_t count = std::min(kTimesAtOnce, times - first);
    double t[kTimesAtOnce], decayed[kTimesAtOnce];
    for (uint32_t i = 0; i < count; ++i) t[i] = double{time[first + i]} + bias[first + i];
    softplus({t, count});
    for (uint32_t i = 0; i < count; ++i) {
      if (!p.delta) t[i] = std::fmin(std::fmax(t[i], double{p.time_min}), double{p.time_max});
      decayed[i] = std::fmax(rate[p.by_key ? (first + i) / p.key_dim : first + i] * t[i], -600.0);
    }
    portable_exp({decayed, count});
    for (uint32_t i = 0; i < count; ++i) {
      decay[first + i] = static_cast<float>(decayed[i]);
      if (p.delta) continue;
      const uint32_t at = (first + i) * p.value_dim;
      std::memcpy(timed + at, columns + input.v + at, p.value_dim * sizeof(float));
      kernels.scale(timed + at, static_cast<float>(t[i]), p.value_dim);
    }
  }
  if (!p.delta) return;
  sigmoid(beta, p.heads);
  // x / sqrt(sum + eps) as a norm: (x / sqrt(sum / n + eps / n)) / sqrt(n)
  const double root = std::sqrt(static_cast<double>(p.key_dim));
  const std::vector<float> unit(p.key_dim, static_cast<float>(1.0 / root)), scaled(p.key_dim, static_cast<float>(1.0 / (root * root)));
  const auto eps = static_cast<float>(kKeyEps / p.key_dim);
  for (uint32_t h = 0; h < p.key_heads; ++h) {
    float* const q = columns + input.q + h * p.key_dim;
    float* const k = columns + input.k + h * p.key_dim;
    kernels.rms_norm(q, scaled.data(), eps, p.key_dim, q);
    kernels.rms_norm(k, unit.data(), eps, p.key_dim, k);
  }
}

}  // namespace

void CpuStep::convolve(const ConvolutionPlaces& places, const Columns& from, const Columns& to) const {
  const StateLayer& layer = context_.state.layers[places.layer];
  const uint32_t kept = layer.taps - 1, last = places.in_state + places.channels;
  const float* const x = CpuDevice::at(from.base) + from.first;
  float* const out = CpuDevice::at(to.base) + to.first;
  std::vector<const float*> weights;
  for (const VectorPlace& tap : places.taps) weights.push_back(weights_.vector(tap));
  const auto taps_stride = static_cast<size_t>(weights[1] - weights[0]);
  const float* const bias = places.bias ? weights_.vector(*places.bias) : nullptr;
  const uint32_t first_stretch = places.in_state / kTailChannels, stretches = (last - 1) / kTailChannels + 1 - first_stretch;
  compute_.threads.parallel_for(input_.slices.size() * stretches, [&](size_t task, int) {
    const uint32_t stretch = first_stretch + static_cast<uint32_t>(task % stretches), begin = stretch * kTailChannels;
    const uint32_t width = std::min(kTailChannels, layer.channels - begin);  // of the stretch's piece
    const uint32_t low = std::max(begin, places.in_state), count = std::min(begin + kTailChannels, last) - low, channel = low - places.in_state;
    const auto slice = static_cast<uint32_t>(task / stretches);
    for_state_parts(input_.slices[slice], batch_.begin(slice), [&](uint32_t row, uint32_t rows, std::span<const DeviceAddress> before, std::span<const DeviceAddress> after) {
      const float* const tail = before.empty() ? nullptr : at_place(before, layer.tails[stretch]) + (low - begin);
      float* const next = at_place(after, layer.tails[stretch]) + (low - begin);
      const float* const in = x + row * size_t{from.stride} + channel;
      compute_.kernels.convolve({.x = in, .x_stride = from.stride, .tail = tail, .tail_stride = width, .weight = weights[0] + channel, .weight_stride = taps_stride,
                                 .bias = bias == nullptr ? nullptr : bias + channel, .out = out + row * size_t{to.stride} + channel, .out_stride = to.stride,
                                 .channels = count, .taps = layer.taps, .tokens = rows, .silu = places.silu});
      for (uint32_t i = 0; i < kept; ++i) {  // the last inputs of the old tail and the rows together
        const uint32_t at = rows + i;
        if (at >= kept) std::memcpy(next + i * width, in + (at - kept) * size_t{from.stride}, count * sizeof(float));
        else if (tail != nullptr) std::memmove(next + i * width, tail + at * width, count * sizeof(float));
        else std::memset(next + i * width, 0, count * sizeof(float));
      }
    });
  });
}

void CpuStep::recur(const RecurrencePlaces& p, const RecurrenceInput& input, Floats to) const {
  const StateLayer& layer = context_.state.layers[p.layer];
  const uint32_t times = p.by_key ? p.heads * p.key_dim : p.heads, values = p.heads * p.value_dim, stretches = layer.stretches();
  for_rows(compute_.threads, rows(), (times + values) * 16, [&](uint32_t row) { drive(compute_.kernels, weights_, at_, p, input, row); });
  const float* const columns = CpuDevice::at(input.row);
  const float* const decays = CpuDevice::at(at_.decays);
  const float* const betas = CpuDevice::at(at_.betas);
  const float* const timed = CpuDevice::at(at_.timed);
  float* const out = CpuDevice::at(to);
  const size_t tasks_each = size_t{p.heads} * stretches;
  compute_.threads.parallel_for(input_.slices.size() * tasks_each, [&](size_t task, int) {
    const auto piece = static_cast<uint32_t>(task % tasks_each), head = piece / stretches, stretch = piece % stretches;
    const uint32_t key_head = p.tiled_keys ? head % p.key_heads : head / (p.heads / p.key_heads), value = head * p.value_dim + stretch * kScanValuesMax;
    const auto slice = static_cast<uint32_t>(task / tasks_each);
    for_state_parts(input_.slices[slice], batch_.begin(slice), [&](uint32_t row, uint32_t rows, std::span<const DeviceAddress> before, std::span<const DeviceAddress> after) {
      const float* const base = columns + row * size_t{input.stride};
      ScanCall call{.from = before.empty() ? nullptr : at_place(before, layer.scans[piece]), .state = at_place(after, layer.scans[piece]), .width = layer.width(stretch)};
      call.q = base + input.q + key_head * p.key_dim;
      call.k = base + input.k + key_head * p.key_dim;
      call.stride = input.stride;
      call.v = p.delta ? base + input.v + value : timed + row * size_t{values} + value;
      call.v_stride = p.delta ? input.stride : values;
      call.decay = decays + row * size_t{times} + (p.by_key ? head * p.key_dim : head);
      call.decay_stride = times;
      call.decay_by_key = p.by_key;
      if (p.delta) call.beta = betas + row * size_t{p.heads} + head;
      call.beta_stride = p.heads;
      call.out = out + row * size_t{values} + value;
      call.out_stride = values;
      call.key_dim = p.key_dim;
      call.values = std::min(kScanValuesMax, p.value_dim - stretch * kScanValuesMax);
      call.tokens = rows;
      compute_.kernels.scan(call);
      if (!p.skip) return;
      const float factor = weights_.vector(*p.skip)[head];
      for (uint32_t t = 0; t < rows; ++t) compute_.kernels.add_scaled(call.out + t * size_t{values}, factor, base + t * size_t{input.stride} + input.v + value, call.values);
    });
  });
}

void CpuStep::split(Floats from, uint32_t groups, std::initializer_list<SplitPart> parts) const {
  uint32_t width = 0;
  for (const SplitPart& part : parts) width += part.width;
  const float* const in = CpuDevice::at(from);
  for_rows(compute_.threads, rows(), uint64_t{groups} * width, [&](uint32_t row) {
    const float* at = in + row * size_t{groups} * width;
    for (uint32_t g = 0; g < groups; ++g) {
      for (const SplitPart& part : parts) {
        std::memcpy(CpuDevice::at(part.out) + row * size_t{part.stride} + part.first + g * part.width, at, part.width * sizeof(float));
        at += part.width;
      }
    }
  });
}

void CpuStep::activate(Activation activation, Floats gate, Floats up, uint32_t width, Floats to) const {
  const float* const g = CpuDevice::at(gate);
  const float* const u = CpuDevice::at(up);
  float* const out = CpuDevice::at(to);
  for_rows(compute_.threads, rows(), width * 4, [&](uint32_t row) { activate_row(compute_.kernels, activation, g + row * size_t{width}, u + row * size_t{width}, width, out + row * size_t{width}); });
}

void activate_row(const Kernels& k, Activation activation, const float* gate, const float* up, size_t width, float* out) {
  switch (activation) {
    case Activation::kSilu: return k.silu_mul(gate, up, width, out);
    case Activation::kGelu: return k.gelu_mul(gate, up, width, out);
    case Activation::kGeluErf: return k.gelu_erf_mul(gate, up, width, out);
    case Activation::kSigmoid: return k.sigmoid_mul(gate, up, width, out);
    case Activation::kProduct: return k.mul(gate, up, width, out);
    case Activation::kSquaredRelu: return k.square_positive(gate, width, out);
  }
}

void CpuStep::group_norm(Floats from, const VectorPlace& weight, double eps, Floats to, uint32_t groups) const {
  const uint64_t width = weight.size / groups;
  const float* const x = CpuDevice::at(from);
  float* const out = CpuDevice::at(to);
  for_rows(compute_.threads, rows(), weight.size, [&](uint32_t row) {
    for (uint64_t g = 0; g < groups; ++g) {
      const uint64_t at = row * uint64_t{weight.size} + g * width;
      compute_.kernels.rms_norm(x + at, weights_.vector(weight) + g * width, static_cast<float>(eps), width, out + at);
    }
  });
}

}  // namespace shoal
