#include "experts/request_rows.h"

#include <cstring>

#include "base/check.h"
#include "device/cpu_device.h"
#include "kernels/expert_ops.h"

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
    out.routes.push_back({static_cast<uint16_t>(token), static_cast<uint16_t>(row.expert), routed.weight});
  }
  return out;
}

RequestRows send_rows(ExpertLink& link, uint32_t lane, const Exchange& exchange, std::span<const RoutedRow> rows, TimePoint now) {
  RequestRows sent = request_rows(exchange, rows);
  const auto count = static_cast<uint32_t>(rows.size());
  const ControlWord word = link.slots[lane].submit(SlotKind::kRequest, static_cast<uint16_t>(exchange.layer), count, exchange.width);
  const RequestHead head{.layer = static_cast<uint16_t>(exchange.layer), .lane = static_cast<uint16_t>(lane), .tokens = static_cast<uint32_t>(sent.tokens.size()),
                         .rows = count, .width = exchange.width, .client = link.welcome.client, .placement = link.welcome.version, .seq = word.seq,
                         .epoch = word.epoch, .submitted_ns = static_cast<uint64_t>(now.time_since_epoch().count()),
                         .seal = link.channel->streamed() ? SlotSeal::kWhole : SlotSeal::kHead};
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
