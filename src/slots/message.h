// What lies in a slot: bytes, little-endian. A request half is in the server's memory and written by the client, a response half in
// the client's and written by the server; each side polls only its own memory.
//
//     0   control word, in a cache line of its own
//    64   head, 64 bytes: golden in message_test.cc
//   128   payload, `payload_bytes` of it:
//           request   routes [rows] of 8 bytes {token u16, expert u16, weight f32}, zeros up to a multiple of 64, hidden [tokens, width] f32
//           response  outputs [rows, width] f32, in the order of the routes; where a request asks for sums, one row for each run
//                     of routes of which all but the first say that they are summed with the one before
//     .   tail, 16 bytes, at the next multiple of 8: seq u32, epoch u32, checksum u64 of head and payload
//
// Rows are f32 because that is what the kernels take (kernels/expert_ops.h quantises rows itself, each alone, so the codes that an
// expert makes of a row are the same here and elsewhere).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/status.h"
#include "slots/control_word.h"

namespace shoal {

constexpr size_t kSlotHeadAt = 64, kSlotPayloadAt = 128, kSlotHeadBytes = 64, kSlotTailBytes = 16;
constexpr uint16_t kSlotVersion = 1;      // of the bytes; another one is refused by name when a connection is made
constexpr uint32_t kSlotTokensMax = 65'535;
constexpr uint32_t kSlotRowsMax = 1 << 20;
constexpr uint32_t kSlotWidthMax = 1 << 20;

// A row of the request: token `token` of it goes to expert `expert` of the layer.
struct SlotRoute {
  uint16_t token = 0;
  uint16_t expert = 0;
  float weight = 0;  // of models that weigh an expert's input; of others it is for the client alone
  friend bool operator==(const SlotRoute&, const SlotRoute&) = default;
};
static_assert(sizeof(SlotRoute) == 8);

// In the expert of a route, of a request that asks for sums: what it gives is not sent, but added to what the route before it gives.
constexpr uint16_t kSlotJoined = 0x8000;

// What the checksum in the tail is of. kHead, head and routes alone, is enough where the control word is not seen before the payload is
// whole: in shared memory, by the release store. It saves reading the payload twice.
enum class SlotSeal : uint8_t { kWhole, kHead };

struct RequestHead {
  uint16_t layer = 0;      // among the model's layers with experts
  uint16_t lane = 0;
  uint32_t tokens = 0, rows = 0, width = 0;
  uint64_t client = 0;     // its number at this server
  uint32_t placement = 0;  // version of what the client knows of the server's experts
  uint32_t slack_us = 0;   // until the answer is needed; 0: nothing is said
  uint32_t seq = 0;
  uint16_t epoch = 0;
  uint64_t submitted_ns = 0;  // of the client's clock; for people
  SlotSeal seal = SlotSeal::kWhole;
  bool sums = false;       // asks for sums
  friend bool operator==(const RequestHead&, const RequestHead&) = default;
};

enum class SlotStatus : uint16_t {
  kOk = 0,
  kNotHosted = 1,   // one of the experts is not here (any more): the client routes anew
  kOverloaded = 2,
  kBadRequest = 3,  // sealed, and senseless: a client of another version, or a fault of ours
  kFailed = 4,      // it could not be computed
};

struct ResponseHead {
  uint16_t layer = 0;
  uint16_t lane = 0;
  uint32_t rows = 0, width = 0;
  SlotStatus status = SlotStatus::kOk;
  uint32_t seq = 0;
  uint64_t client = 0;
  uint16_t epoch = 0;
  uint16_t batch_clients = 0;  // that were served together
  uint32_t batch_rows = 0;
  uint32_t service_us = 0, queue_us = 0;
  uint32_t placement = 0;      // version of what the server holds
  SlotSeal seal = SlotSeal::kWhole;
  friend bool operator==(const ResponseHead&, const ResponseHead&) = default;
};

// Bytes of a whole half with so much in it.
size_t request_bytes(uint32_t tokens, uint32_t rows, uint32_t width);
size_t response_bytes(uint32_t rows, uint32_t width);

// Writes head and routes; the caller then writes hidden [tokens, width] where it is told, and seals. InvalidArgument if it does not fit
// the slot or a limit.
StatusOr<std::span<float>> write_request(const RequestHead& head, std::span<const SlotRoute> routes, std::span<std::byte> slot);
// Likewise: outputs [rows, width].
StatusOr<std::span<float>> write_response(const ResponseHead& head, std::span<std::byte> slot);
// The tail of what was written. The control word may be stored then.
void seal_request(std::span<std::byte> slot);
void seal_response(std::span<std::byte> slot);

struct RequestView {
  RequestHead head;
  std::vector<SlotRoute> routes;     // a copy: what was checked does not change
  std::vector<bool> joined;          // of each route: it is summed with the one before; empty: none is
  std::span<const float> hidden;     // [tokens, width], in the slot
};
struct ResponseView {
  ResponseHead head;
  std::span<const float> outputs;    // [rows, width], in the slot
};

// What the reader of a slot knows already.
struct RequestLimits {
  uint32_t width = 0, layers = 0, experts = 0;  // of the model
};

// DataLoss: torn or damaged, maybe whole a moment later. InvalidArgument: sealed, but nothing that may be computed; what it says of
// itself is in `view.head`, for the answer.
Status read_request(const ControlWord& word, std::span<const std::byte> slot, const RequestLimits& limits, RequestView& view);
Status read_response(const ControlWord& word, std::span<const std::byte> slot, ResponseView& view);

// Of bytes in order: four sums of eight bytes each, multiplied and mixed.
uint64_t slot_checksum(std::span<const std::byte> bytes, uint64_t seed);

}  // namespace shoal
