#include "experts/request_rows.h"

#include <cstring>

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

void copy_tokens(const Exchange& exchange, std::span<const uint32_t> tokens, std::span<float> hidden) {
  const uint64_t width = exchange.width;
  const float* const input = CpuDevice::at(exchange.input);
  for (size_t i = 0; i < tokens.size(); ++i) std::memcpy(hidden.data() + i * width, input + tokens[i] * width, width * sizeof(float));
}

}  // namespace shoal
