#include "slots/slot.h"

#include "base/check.h"

namespace shoal {
namespace {

// Wraps after 2^32 requests, past the 0 of fresh memory.
uint32_t next_seq(uint32_t seq) { return seq == UINT32_MAX ? 1 : seq + 1; }

}  // namespace

void ClientSlot::connect(uint16_t epoch, uint64_t client, uint16_t lane) {
  state_ = State::kIdle;
  epoch_ = epoch;
  client_ = client;
  lane_ = lane;
  seq_ = 0;
}

ControlWord ClientSlot::submit(SlotKind kind, uint16_t layer, uint32_t rows, uint32_t width) {
  CHECK(state_ == State::kIdle);
  state_ = State::kSubmitted;
  seq_ = next_seq(seq_);
  layer_ = layer;
  rows_ = rows;
  width_ = width;
  return {seq_, epoch_, kind, SlotState::kWritten};
}

void ClientSlot::give_up() {
  CHECK(state_ == State::kSubmitted);
  state_ = State::kQuarantined;
}

// Seq and epoch were compared with the control word's.
bool ClientSlot::answers(const ResponseHead& head) const {
  if (head.client != client_ || head.lane != lane_ || head.layer != layer_) return false;
  return head.status != SlotStatus::kOk || (head.rows == rows_ && (rows_ == 0 || head.width == width_));
}

ClientSlot::Heard ClientSlot::hear(uint64_t control, std::span<const std::byte> slot, ResponseView& view, Status& why) {
  if (state_ == State::kIdle) return Heard::kNothing;
  const auto word = unpack(control);
  if (!word || word->state != SlotState::kDone || word->epoch != epoch_ || word->seq != seq_) return Heard::kNothing;
  const Status read = read_response(*word, slot, view);
  if (read.code() == StatusCode::kDataLoss) {
    why = read;
    return Heard::kTorn;
  }
  if (!read.ok() || !answers(view.head)) {
    why = read.ok() ? data_loss("an answer of ", view.head.rows, " rows of layer ", view.head.layer, " to a request of ", rows_, " rows of layer ", layer_) : read;
    return Heard::kBad;
  }
  const bool late = state_ == State::kQuarantined;
  state_ = State::kIdle;
  return late ? Heard::kLate : Heard::kAnswer;
}

void ServerSlot::attach(uint16_t epoch) {
  state_ = State::kAttached;
  epoch_ = epoch;
  seq_ = 0;
}

ServerSlot::Found ServerSlot::look(uint64_t control, std::span<const std::byte> slot, const RequestLimits& limits, bool arrived, RequestView& view, Status& why) {
  if (state_ != State::kAttached) return Found::kNothing;
  const auto word = unpack(control);
  if (!word || word->state != SlotState::kWritten || word->epoch != epoch_) return Found::kNothing;
  if (word->seq == seq_ && seq_ != 0) return arrived ? Found::kRepublish : Found::kNothing;
  if (word->seq != next_seq(seq_)) return Found::kNothing;  // a word from before, once more
  if (word->kind == SlotKind::kDetach) {
    state_ = State::kOffline;
    return Found::kDetach;
  }
  const Status read = read_request(*word, slot, limits, view);
  if (read.code() == StatusCode::kDataLoss) {
    why = read;
    return Found::kTorn;
  }
  state_ = State::kServing;
  seq_ = word->seq;
  why = read;
  if (!read.ok()) return Found::kBad;
  if (word->kind == SlotKind::kRequest) return Found::kRequest;
  return Found::kEmpty;
}

ControlWord ServerSlot::answer() {
  CHECK(state_ == State::kServing);
  state_ = State::kAttached;
  return answered();
}

}  // namespace shoal
