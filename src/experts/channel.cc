#include "experts/channel.h"

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "base/log.h"
#include "nlohmann/json.hpp"
#include "slots/message.h"

namespace shoal {
namespace {

constexpr size_t kQueueMax = 1024;  // notes and halves that the other side does not take: it is lost

}  // namespace

SlotChannel::SlotChannel(Parts parts, uint32_t lanes, OnNote on_note) : parts_(std::move(parts)), on_note_(std::move(on_note)), arrived_(lanes), sending_(lanes) {
  reader_ = std::thread([this] { read(); });
  writer_ = std::thread([this] { write(); });
}

SlotChannel::~SlotChannel() {
  end();
  reader_.join();
  writer_.join();
}

void SlotChannel::end() {
  {
    std::lock_guard lock(mutex_);
    broken_.store(true, std::memory_order_release);
  }
  parts_.in->shut_down();
  if (parts_.out != nullptr) parts_.out->shut_down();
  more_.notify_all();
  parts_.bell->ring();  // who waits for it is to know
}

void SlotChannel::publish(uint32_t lane, const ControlWord& word, size_t bytes) {
  if (!streamed()) {
    parts_.outbox->store_control(lane, pack(word));
    if (parts_.outbox->owner_sleeps()) parts_.peer_bell->ring();
    return;
  }
  std::unique_lock lock(mutex_);
  if (broken_) return;
  if (queue_.size() >= kQueueMax) return lock.unlock(), end();
  sending_[lane].store(true, std::memory_order_relaxed);
  queue_.push_back({.lane = lane, .word = word, .bytes = bytes});
  more_.notify_one();
}

void SlotChannel::note(const Json& note) {
  std::unique_lock lock(mutex_);
  if (queue_.size() >= kQueueMax) return lock.unlock(), end();
  queue_.push_back({.note = dump_json(note)});
  more_.notify_one();
}

void SlotChannel::read() {
  while (!broken()) {
    const auto head = read_frame_head(*parts_.in);
    Status status = head.status();
    if (status.ok() && head->kind == static_cast<uint32_t>(FrameKind::kHalf)) {
      status = read_half(*head);
    } else if (status.ok()) {
      auto note = read_note_body(*parts_.in, *head);
      status = note.status();
      if (status.ok() && on_note_) on_note_(*std::move(note));
    }
    if (!status.ok()) {
      if (status.code() != StatusCode::kUnavailable) log_warning("a connection of experts ends: ", status.message());
      return end();
    }
    count(&StreamBytes::received, sizeof(FrameHead) + head->bytes);
  }
}

void SlotChannel::count(std::atomic<uint64_t> StreamBytes::*way, uint64_t bytes) const {
  if (streamed() && parts_.bytes != nullptr) (*parts_.bytes).*way += bytes;
}

// What comes goes to its place, the word last.
Status SlotChannel::read_half(const FrameHead& head) {
  uint64_t word = 0;
  if (!streamed() || head.lane >= arrived_.size()) return invalid_argument("a half of a slot that there is not");
  const std::span<std::byte> half = parts_.inbox->half(head.lane);
  if (head.bytes < sizeof(word) || head.bytes - sizeof(word) > half.size() - kSlotHeadAt) return invalid_argument("a half that does not fit its slot");
  RETURN_IF_ERROR(parts_.in->read(std::as_writable_bytes(std::span(&word, 1))));
  const std::span<std::byte> to = half.subspan(kSlotHeadAt, head.bytes - sizeof(word));
  if (word == parts_.inbox->control(head.lane)) {
    RETURN_IF_ERROR(read_again(to));
  } else {
    RETURN_IF_ERROR(parts_.in->read(to));
    parts_.inbox->store_control(head.lane, word);
  }
  arrived_[head.lane].store(true);
  parts_.bell->ring();
  return OkStatus();
}

// What was published once more, because nobody seemed to hear it, may be in use by now: the same bytes stay untouched.
Status SlotChannel::read_again(std::span<std::byte> there) {
  std::vector<std::byte> bytes(there.size());
  RETURN_IF_ERROR(parts_.in->read(bytes));
  if (!std::equal(bytes.begin(), bytes.end(), there.begin())) std::copy(bytes.begin(), bytes.end(), there.begin());  // it was torn
  return OkStatus();
}

void SlotChannel::write() {
  while (true) {
    Outgoing next;
    {
      std::unique_lock lock(mutex_);
      more_.wait(lock, [&] { return !queue_.empty() || broken_; });
      if (broken_) break;
      next = std::move(queue_.front());
      queue_.pop_front();
    }
    if (!write_half(next).ok()) end();
    else if (next.bytes > 0) sent(next.lane);
  }
  for (uint32_t lane = 0; lane < sending_.size(); ++lane) sent(lane);  // nothing is any more
}

void SlotChannel::sent(uint32_t lane) {
  sending_[lane].store(false, std::memory_order_release);
  sending_[lane].notify_all();
}

Status SlotChannel::write_half(const Outgoing& next) {
  BulkSocket& socket = parts_.out != nullptr ? *parts_.out : *parts_.in;
  if (next.bytes == 0) {
    const FrameHead head{static_cast<uint32_t>(FrameKind::kNote), 0, next.note.size()};
    std::string bytes(reinterpret_cast<const char*>(&head), sizeof(head));
    bytes += next.note;
    count(&StreamBytes::sent, bytes.size());
    return socket.write(std::as_bytes(std::span(bytes.data(), bytes.size())));
  }
  struct {
    FrameHead head;
    uint64_t word;
  } const prefix{{static_cast<uint32_t>(FrameKind::kHalf), next.lane, sizeof(uint64_t) + next.bytes - kSlotHeadAt}, pack(next.word)};
  count(&StreamBytes::sent, sizeof(FrameHead) + prefix.head.bytes);
  RETURN_IF_ERROR(socket.write(std::as_bytes(std::span(&prefix, 1))));
  return socket.write(parts_.outbox->half(next.lane).subspan(kSlotHeadAt, next.bytes - kSlotHeadAt));
}

}  // namespace shoal
