// Dispatch in two phases: what several expert servers of one machine are asked for goes to one of them over the network, each token once,
// and that one gives it to the others over shared memory (docs/EXPERTS.md). Which one: the relay of the same rank, so that clients and
// lanes spread over all of them. Pure.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "policy/expert_calls.h"

namespace shoal {

// A server over the network that may be asked, and whom it gives rows to: itself among them.
struct ExpertRelayView {
  NodeId server;
  std::vector<NodeId> reaches;
};

// In one request to `to`: directly, if that is the server of the only ask.
struct RoutedAsk {
  NodeId to;
  std::vector<ExpertAsk> asks;
  friend bool operator==(const RoutedAsk&, const RoutedAsk&) = default;
};

// An ask that shares its relay with no other one goes directly: nothing is saved, and one hop is.
std::vector<RoutedAsk> route_asks(std::span<const ExpertAsk> asks, std::span<const ExpertRelayView> relays, uint64_t rank);

// Pieces of these with at most so many rows each, so that all rows of a token, of any ask, go in one piece if they fit. `rows` are the call's.
std::vector<std::vector<ExpertAsk>> pieces_of(std::span<const ExpertAsk> asks, std::span<const ExpertRow> rows, uint32_t rows_max);

}  // namespace shoal
