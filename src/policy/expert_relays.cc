#include "policy/expert_relays.h"

#include <algorithm>
#include <utility>

namespace shoal {

std::vector<RoutedAsk> route_asks(std::span<const ExpertAsk> asks, std::span<const ExpertRelayView> relays, uint64_t rank) {
  std::vector<RoutedAsk> routed;
  for (const ExpertAsk& ask : asks) {
    std::vector<NodeId> may;
    for (const ExpertRelayView& relay : relays) {
      if (std::find(relay.reaches.begin(), relay.reaches.end(), ask.server) != relay.reaches.end()) may.push_back(relay.server);
    }
    const NodeId to = may.empty() ? ask.server : may[rank % may.size()];
    const auto same = std::find_if(routed.begin(), routed.end(), [&](const RoutedAsk& other) { return other.to == to; });
    if (same != routed.end()) same->asks.push_back(ask);
    else routed.push_back({to, {ask}});
  }
  for (RoutedAsk& one : routed) {
    if (one.asks.size() == 1) one.to = one.asks.front().server;
  }
  return routed;
}

std::vector<std::vector<ExpertAsk>> pieces_of(std::span<const ExpertAsk> asks, std::span<const ExpertRow> rows, uint32_t rows_max) {
  size_t count = 0;
  for (const ExpertAsk& ask : asks) count += ask.rows.size();
  if (count <= rows_max) return {{asks.begin(), asks.end()}};
  std::vector<std::pair<uint32_t, const ExpertAsk*>> all;  // rows, by token
  for (const ExpertAsk& ask : asks) {
    for (const uint32_t row : ask.rows) all.emplace_back(row, &ask);
  }
  std::stable_sort(all.begin(), all.end(), [&](const auto& a, const auto& b) { return rows[a.first].token < rows[b.first].token; });
  std::vector<std::vector<ExpertAsk>> pieces;
  size_t left = 0;  // room in the last piece
  for (size_t begin = 0, end; begin < all.size(); begin = end) {
    end = begin + 1;
    while (end < all.size() && rows[all[end].first].token == rows[all[begin].first].token) ++end;
    for (size_t i = begin; i < end; ++i) {
      if (left == 0 || (i == begin && left < end - begin && left < rows_max)) pieces.emplace_back(), left = rows_max;
      const auto& [row, ask] = all[i];
      std::vector<ExpertAsk>& piece = pieces.back();
      const auto same = std::find_if(piece.begin(), piece.end(), [&](const ExpertAsk& other) { return other.server == ask->server; });
      if (same != piece.end()) same->rows.push_back(row);
      else piece.push_back({ask->server, {row}});
      --left;
    }
  }
  return pieces;
}

}  // namespace shoal
