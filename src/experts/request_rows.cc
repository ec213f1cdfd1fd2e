#include "experts/request_rows.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <utility>

#include "base/check.h"
#include "device/cpu_device.h"
#include "kernels/expert_ops.h"
#include "kernels/expert_router.h"
#include "kernels/kernels.h"

namespace shoal {

RequestRows request_rows(const Exchange& exchange, std::span<const RoutedRow> rows) {
  RequestRows out;
  out.routes.reserve(rows.size());
  std::vector<uint32_t> token_of(exchange.rows, UINT32_MAX);
  std::vector<bool> seen(exchange.experts);
  for (const RoutedRow& row : rows) {
    const ExpertRoutes::Routed& routed = exchange.routes->routed[row.routed];
    if (!seen[row.expert]) seen[row.expert] = true, ++out.experts;
    uint32_t& token = token_of[routed.row];
    if (token == UINT32_MAX) {
      token = static_cast<uint32_t>(out.tokens.size());
      out.tokens.push_back(routed.row);
    }
    out.routes.push_back({static_cast<uint16_t>(token), static_cast<uint16_t>(row.expert | (row.joined ? kSlotJoined : 0)), routed.weight});
    out.answers += row.joined ? 0 : 1;
  }
  return out;
}

bool join_groups(std::span<const ExpertRow> call, uint32_t experts, std::vector<uint32_t>& part, std::vector<bool>& joined) {
  using Group = std::pair<uint32_t, uint32_t>;  // token, and which of its groups
  const auto group_of = [&](uint32_t row) { return Group(call[row].token, expert_group(call[row].expert, experts)); };
  std::map<Group, uint32_t> missing;  // rows of each in the call that are not in the part
  for (const uint32_t row : part) --missing[group_of(row)];
  for (uint32_t row = 0; row < call.size(); ++row) {
    if (const auto at = missing.find(group_of(row)); at != missing.end()) ++at->second;
  }
  std::sort(part.begin(), part.end(), [&](uint32_t a, uint32_t b) { return std::pair(group_of(a), call[a].expert) < std::pair(group_of(b), call[b].expert); });
  joined.assign(part.size(), false);
  for (size_t i = 1; i < part.size(); ++i) joined[i] = group_of(part[i]) == group_of(part[i - 1]) && missing[group_of(part[i])] == 0;
  return std::find(joined.begin(), joined.end(), true) != joined.end();
}

void take_rows(const Exchange& exchange, std::span<const uint32_t> routed, const std::vector<bool>& joined, std::span<const float> outputs) {
  const uint64_t width = exchange.width;
  float* const out = CpuDevice::at(exchange.output);
  const float* next = outputs.data();
  const auto is_joined = [&](size_t i) { return i < joined.size() && joined[i]; };
  for (size_t i = 0; i < routed.size(); ++i) {
    float* const row = out + routed[i] * width;
    float& weight = exchange.routes->routed[routed[i]].weight;
    if (is_joined(i)) {
      std::fill_n(row, width, 0.0f);
      weight = 0;
      continue;
    }
    std::memcpy(row, next, width * sizeof(float));
    next += width;
    if (is_joined(i + 1)) weight = 1;
  }
}

std::vector<float> summed_rows(const RequestView& view, bool weigh_input, std::span<const float> outputs) {
  const Kernels kernels = best_kernels();
  const uint64_t width = view.head.width;
  std::vector<float> rows;
  for (size_t i = 0; i < view.routes.size(); ++i) {
    const float* const row = outputs.data() + i * width;
    const bool first = !view.joined[i], alone = first && (i + 1 == view.routes.size() || !view.joined[i + 1]);
    if (alone) {
      rows.insert(rows.end(), row, row + width);
      continue;
    }
    if (first) rows.resize(rows.size() + width, 0.0f);
    kernels.add_scaled(rows.data() + rows.size() - width, weigh_input ? 1.0f : view.routes[i].weight, row, width);
  }
  return rows;
}

RequestRows send_rows(ExpertLink& link, uint32_t lane, const Exchange& exchange, std::span<const RoutedRow> rows, TimePoint now) {
  RequestRows sent = request_rows(exchange, rows);
  const auto count = static_cast<uint32_t>(rows.size());
  const ControlWord word = link.slots[lane].submit(SlotKind::kRequest, static_cast<uint16_t>(exchange.layer), sent.answers, exchange.width);
  const RequestHead head{.layer = static_cast<uint16_t>(exchange.layer), .lane = static_cast<uint16_t>(lane), .tokens = static_cast<uint32_t>(sent.tokens.size()),
                         .rows = count, .width = exchange.width, .client = link.welcome.client, .placement = link.welcome.version, .seq = word.seq,
                         .epoch = word.epoch, .submitted_ns = static_cast<uint64_t>(now.time_since_epoch().count()),
                         .seal = link.channel->streamed() ? SlotSeal::kWhole : SlotSeal::kHead, .sums = sent.answers < count};
  const std::span<std::byte> half = link.channel->outbox(lane);
  const auto hidden = write_request(head, sent.routes, half);
  CHECK(hidden.ok());
  const uint64_t width = exchange.width;
  const float* const input = CpuDevice::at(exchange.input);
  for (size_t i = 0; i < sent.tokens.size(); ++i) std::memcpy(hidden->data() + i * width, input + sent.tokens[i] * width, width * sizeof(float));
  seal_request(half);
  link.channel->publish(lane, word, request_bytes(head.tokens, head.rows, head.width));
  return sent;
}

}  // namespace shoal
