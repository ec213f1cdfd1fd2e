#include "slots/message.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/bytes.h"

namespace shoal {
namespace {

static_assert(std::endian::native == std::endian::little, "slots are read and written as they lie in memory");

constexpr uint32_t kRequestMagic = 0x31515853, kResponseMagic = 0x31415853;  // "SXQ1", "SXA1"
constexpr uint8_t kF32 = 1, kRowsOut = 1, kSumsOut = 2;

// As they lie in a slot, fields in the order of their bytes.
struct RawRequest {
  uint32_t magic;
  uint16_t version, layer;
  uint32_t tokens, rows, width;
  uint8_t input, output;
  uint16_t lane;
  uint64_t client;
  uint32_t placement, slack_us, seq;
  uint16_t epoch, seal;
  uint64_t submitted_ns, payload_bytes;
};
struct RawResponse {
  uint32_t magic;
  uint16_t version, layer;
  uint32_t rows, width;
  uint16_t status, lane;
  uint32_t seq;
  uint64_t client;
  uint16_t epoch, batch_clients;
  uint32_t batch_rows, service_us, queue_us, placement, seal;
  uint64_t payload_bytes;
};
struct RawTail {
  uint32_t seq, epoch;
  uint64_t checksum;
};
static_assert(sizeof(RawRequest) == kSlotHeadBytes && sizeof(RawResponse) == kSlotHeadBytes && sizeof(RawTail) == kSlotTailBytes);

uint64_t routes_bytes(uint64_t rows) { return round_up(rows * sizeof(SlotRoute), 64); }
uint64_t request_payload(uint64_t tokens, uint64_t rows, uint64_t width) { return routes_bytes(rows) + tokens * width * sizeof(float); }
uint64_t tail_at(uint64_t payload) { return kSlotPayloadAt + round_up(payload, 8); }

// Bytes from the head on that the checksum is of.
uint64_t sealed_bytes(const RawRequest& raw) {
  return kSlotHeadBytes + (raw.seal == static_cast<uint16_t>(SlotSeal::kWhole) ? raw.payload_bytes : std::min(raw.payload_bytes, routes_bytes(raw.rows)));
}
uint64_t sealed_bytes(const RawResponse& raw) { return kSlotHeadBytes + (raw.seal == static_cast<uint32_t>(SlotSeal::kWhole) ? raw.payload_bytes : 0); }

template <typename Raw>
Raw raw_head(std::span<const std::byte> slot) {
  Raw raw;
  std::memcpy(&raw, slot.data() + kSlotHeadAt, sizeof(raw));
  return raw;
}

template <typename Raw>
void seal(std::span<std::byte> slot) {
  const auto raw = raw_head<Raw>(slot);
  const auto sealed = slot.subspan(kSlotHeadAt, sealed_bytes(raw));
  const RawTail tail{raw.seq, raw.epoch, slot_checksum(sealed, raw.seq)};
  std::memcpy(slot.data() + tail_at(raw.payload_bytes), &tail, sizeof(tail));
}

// The head, if it is of this word and sealed whole.
template <typename Raw>
Status read_sealed(const ControlWord& word, std::span<const std::byte> slot, uint32_t magic, Raw& raw) {
  if (slot.size() < kSlotPayloadAt + kSlotTailBytes) return data_loss("a slot of ", slot.size(), " bytes holds nothing");
  raw = raw_head<Raw>(slot);
  if (raw.magic != magic || raw.seq != word.seq || raw.epoch != word.epoch) return data_loss("the head of the slot is not of its control word");
  if (raw.payload_bytes > slot.size() || tail_at(raw.payload_bytes) + kSlotTailBytes > slot.size()) return data_loss("the slot says that it holds more bytes than it has");
  RawTail tail;
  std::memcpy(&tail, slot.data() + tail_at(raw.payload_bytes), sizeof(tail));
  if (tail.seq != word.seq || tail.epoch != word.epoch) return data_loss("the tail of the slot is not of its control word");
  if (tail.checksum != slot_checksum(slot.subspan(kSlotHeadAt, sealed_bytes(raw)), raw.seq)) return data_loss("the slot's checksum does not fit its bytes");
  return OkStatus();
}

RequestHead head_of(const RawRequest& raw) {
  return {raw.layer, raw.lane, raw.tokens, raw.rows, raw.width, raw.client, raw.placement, raw.slack_us, raw.seq, raw.epoch, raw.submitted_ns, static_cast<SlotSeal>(raw.seal), raw.output == kSumsOut};
}

// The bits of joined routes, taken out of them.
Status read_joined(RequestView& view) {
  view.joined.resize(view.routes.size());
  for (size_t i = 0; i < view.routes.size(); ++i) {
    SlotRoute& route = view.routes[i];
    view.joined[i] = (route.expert & kSlotJoined) != 0;
    route.expert &= static_cast<uint16_t>(~kSlotJoined);
    if (view.joined[i] && (i == 0 || view.routes[i - 1].token != route.token)) return invalid_argument("a row that is summed with one of another token");
  }
  return OkStatus();
}

Status check_request(const RawRequest& raw, const RequestLimits& limits) {
  if (raw.version != kSlotVersion) return invalid_argument("a request of version ", raw.version, ", and this server reads ", kSlotVersion, "; run the same version of shoal on both");
  if (raw.input != kF32 || (raw.output != kRowsOut && raw.output != kSumsOut)) return invalid_argument("a request for rows in a form that this server does not know");
  if (raw.tokens > kSlotTokensMax || raw.rows > kSlotRowsMax) return invalid_argument("a request of ", raw.rows, " rows of ", raw.tokens, " tokens is beyond what a slot takes");
  if (raw.rows > 0 && raw.width != limits.width) return invalid_argument("a request with rows of ", raw.width, " numbers, and the model's have ", limits.width);
  if (raw.rows > 0 && raw.layer >= limits.layers) return invalid_argument("a request for layer ", raw.layer, " of ", limits.layers, " that have experts");
  if (raw.payload_bytes != request_payload(raw.tokens, raw.rows, raw.width)) return invalid_argument("a request whose bytes are not as many as its rows say");
  return OkStatus();
}

}  // namespace

size_t request_bytes(uint32_t tokens, uint32_t rows, uint32_t width) { return tail_at(request_payload(tokens, rows, width)) + kSlotTailBytes; }
size_t response_bytes(uint32_t rows, uint32_t width) { return tail_at(uint64_t{rows} * width * sizeof(float)) + kSlotTailBytes; }

uint64_t slot_checksum(std::span<const std::byte> bytes, uint64_t seed) {
  constexpr uint64_t kFactor = 0x9e3779b97f4a7c15;
  uint64_t lanes[4] = {seed + 1, seed + 2, seed + 3, seed + 4};
  const std::byte* at = bytes.data();
  size_t left = bytes.size();
  const auto take = [](uint64_t& lane, uint64_t word) { lane = std::rotl((lane ^ word) * kFactor, 29); };
  for (; left >= 32; at += 32, left -= 32) {
    uint64_t words[4];
    std::memcpy(words, at, sizeof(words));
    for (int i = 0; i < 4; ++i) take(lanes[i], words[i]);
  }
  for (int i = 0; left > 0; ++i) {
    uint64_t word = 0;
    const size_t count = left < 8 ? left : 8;
    std::memcpy(&word, at, count);
    take(lanes[i], word);
    at += count, left -= count;
  }
  uint64_t sum = bytes.size();
  for (const uint64_t lane : lanes) take(sum, lane);
  return sum ^ sum >> 32;
}

StatusOr<std::span<float>> write_request(const RequestHead& head, std::span<const SlotRoute> routes, std::span<std::byte> slot) {
  if (head.tokens > kSlotTokensMax || head.rows > kSlotRowsMax || head.width > kSlotWidthMax || routes.size() != head.rows) return invalid_argument("a request beyond what a slot takes");
  if (request_bytes(head.tokens, head.rows, head.width) > slot.size()) return invalid_argument("a request of ", head.rows, " rows does not fit its slot");
  const uint64_t at = routes_bytes(head.rows);
  const RawRequest raw{kRequestMagic, kSlotVersion, head.layer, head.tokens, head.rows, head.width, kF32, head.sums ? kSumsOut : kRowsOut, head.lane, head.client, head.placement,
                       head.slack_us, head.seq, head.epoch, static_cast<uint16_t>(head.seal), head.submitted_ns, request_payload(head.tokens, head.rows, head.width)};
  std::memcpy(slot.data() + kSlotHeadAt, &raw, sizeof(raw));
  std::byte* const payload = slot.data() + kSlotPayloadAt;
  if (!routes.empty()) std::memcpy(payload, routes.data(), routes.size_bytes());
  std::memset(payload + routes.size_bytes(), 0, at - routes.size_bytes());
  return std::span<float>(reinterpret_cast<float*>(payload + at), size_t{head.tokens} * head.width);
}

StatusOr<std::span<float>> write_response(const ResponseHead& head, std::span<std::byte> slot) {
  if (head.rows > kSlotRowsMax || head.width > kSlotWidthMax) return invalid_argument("a response beyond what a slot takes");
  if (response_bytes(head.rows, head.width) > slot.size()) return invalid_argument("a response of ", head.rows, " rows does not fit its slot");
  const RawResponse raw{kResponseMagic, kSlotVersion, head.layer, head.rows, head.width, static_cast<uint16_t>(head.status), head.lane, head.seq, head.client,
                        head.epoch, head.batch_clients, head.batch_rows, head.service_us, head.queue_us, head.placement, static_cast<uint32_t>(head.seal), uint64_t{head.rows} * head.width * sizeof(float)};
  std::memcpy(slot.data() + kSlotHeadAt, &raw, sizeof(raw));
  return std::span<float>(reinterpret_cast<float*>(slot.data() + kSlotPayloadAt), size_t{head.rows} * head.width);
}

void seal_request(std::span<std::byte> slot) { seal<RawRequest>(slot); }
void seal_response(std::span<std::byte> slot) { seal<RawResponse>(slot); }

Status read_request(const ControlWord& word, std::span<const std::byte> slot, const RequestLimits& limits, RequestView& view) {
  RawRequest raw;
  RETURN_IF_ERROR(read_sealed(word, slot, kRequestMagic, raw));
  view.head = head_of(raw);
  RETURN_IF_ERROR(check_request(raw, limits));
  view.routes.resize(raw.rows);
  if (raw.rows > 0) std::memcpy(view.routes.data(), slot.data() + kSlotPayloadAt, raw.rows * sizeof(SlotRoute));
  view.joined.clear();
  if (view.head.sums) RETURN_IF_ERROR(read_joined(view));
  for (const SlotRoute& route : view.routes) {
    if (route.token >= raw.tokens) return invalid_argument("a row of token ", route.token, " in a request of ", raw.tokens);
    if (route.expert >= limits.experts) return invalid_argument("a row for expert ", route.expert, ", and layer ", raw.layer, " has ", limits.experts);
  }
  view.hidden = {reinterpret_cast<const float*>(slot.data() + kSlotPayloadAt + routes_bytes(raw.rows)), size_t{raw.tokens} * raw.width};
  return OkStatus();
}

Status read_response(const ControlWord& word, std::span<const std::byte> slot, ResponseView& view) {
  RawResponse raw;
  RETURN_IF_ERROR(read_sealed(word, slot, kResponseMagic, raw));
  view.head = {raw.layer, raw.lane, raw.rows, raw.width, static_cast<SlotStatus>(raw.status), raw.seq, raw.client, raw.epoch,
               raw.batch_clients, raw.batch_rows, raw.service_us, raw.queue_us, raw.placement, static_cast<SlotSeal>(raw.seal)};
  if (raw.version != kSlotVersion) return invalid_argument("an answer of version ", raw.version, ", and this client reads ", kSlotVersion);
  if (raw.status > static_cast<uint16_t>(SlotStatus::kFailed)) return invalid_argument("an answer of a kind that this client does not know");
  if (raw.payload_bytes != uint64_t{raw.rows} * raw.width * sizeof(float)) return invalid_argument("an answer whose bytes are not as many as its rows say");
  view.outputs = {reinterpret_cast<const float*>(slot.data() + kSlotPayloadAt), size_t{raw.rows} * raw.width};
  return OkStatus();
}

}  // namespace shoal
