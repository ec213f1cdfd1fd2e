// What the fuzzer runs, and protocol_test.cc runs on random bytes: read a slot, then touch everything that was promised.
#pragma once

#include <cstring>
#include <span>
#include <vector>

#include "base/check.h"
#include "slots/slot.h"

namespace shoal {

// The first eight bytes are a control word, the next one says whether the rest is sealed first, as a writer that means harm would.
// True: something was to be computed.
inline bool fuzz_slots(std::span<const std::byte> data) {
  constexpr RequestLimits kLimits{.width = 4, .layers = 3, .experts = 16};
  if (data.size() < 9) return false;
  uint64_t control = 0;
  std::memcpy(&control, data.data(), sizeof(control));
  std::vector<std::byte> slot(kSlotHeadAt + data.size() - 9 + kSlotTailBytes + 8);
  std::memcpy(slot.data() + kSlotHeadAt, data.data() + 9, data.size() - 9);
  uint64_t payload = 0;
  if (slot.size() >= kSlotPayloadAt + kSlotTailBytes + 8) std::memcpy(&payload, slot.data() + kSlotHeadAt + 56, sizeof(payload));
  const uint64_t room = slot.size() - kSlotPayloadAt;
  if (data[8] != std::byte{0} && slot.size() >= kSlotPayloadAt + kSlotTailBytes + 8 && payload <= room - kSlotTailBytes - 8) {
    if (data[8] == std::byte{1}) seal_request(slot);
    else seal_response(slot);
  }
  Status why;
  RequestView request;
  ServerSlot server;
  const auto word = unpack(control);
  server.attach(word ? word->epoch : 0);
  const auto found = server.look(control, slot, kLimits, false, request, why);
  bool reached = found == ServerSlot::Found::kRequest;
  if (reached) {
    for (const SlotRoute& route : request.routes) reached &= route.token < request.head.tokens && route.expert < kLimits.experts;
    for (size_t i = 0; i < request.joined.size(); ++i) reached &= !request.joined[i] || (i > 0 && request.routes[i].token == request.routes[i - 1].token);
    CHECK(reached);  // a request that was checked names nothing that it has not
    CHECK(request.joined.empty() || request.joined.size() == request.routes.size());
    for (const float x : request.hidden) reached &= x == x || x != x;
  }
  ResponseView response;
  ClientSlot client;
  client.connect(word ? word->epoch : 0, 0, 0);
  client.submit(SlotKind::kRequest, 0, 1, 4);
  if (client.hear(control, slot, response, why) == ClientSlot::Heard::kAnswer) {
    for (const float x : response.outputs) reached |= x == x;
  }
  return reached;
}

}  // namespace shoal
