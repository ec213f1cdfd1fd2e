// One connection of a client with a server of experts, as either side has it: halves of slots that are polled here, halves that are
// written for the other side, and notes. Between processes of one machine the halves are shared memory and the other side's bell is rung
// if it sleeps; else a thread sends what was published and another one writes what comes into memory of this process.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "base/json.h"
#include "experts/region.h"
#include "experts/stream.h"
#include "slots/control_word.h"

namespace shoal {

// What went over streams, whole frames with their heads, once the connection was made.
struct StreamBytes {
  std::atomic<uint64_t> sent{0}, received{0};
};

class SlotChannel {
 public:
  struct Parts {
    std::unique_ptr<Region> inbox;         // polled here
    std::unique_ptr<Region> outbox;        // the other side's; streamed: where halves are made that are then sent
    std::shared_ptr<Bell> bell;            // of whoever polls the inbox
    std::shared_ptr<Bell> peer_bell;       // null: halves are streamed
    std::unique_ptr<BulkSocket> in, out;   // out null: `in` is for both
    std::shared_ptr<StreamBytes> bytes;    // counted there if halves are streamed; null: nowhere
  };
  using OnNote = std::function<void(Json note)>;  // on a thread of the channel

  SlotChannel(Parts parts, uint32_t lanes, OnNote on_note);
  ~SlotChannel();  // ends the connection
  SlotChannel(const SlotChannel&) = delete;
  SlotChannel& operator=(const SlotChannel&) = delete;

  // ---- by the one thread that polls ----
  uint64_t control(uint32_t lane) const { return parts_.inbox->control(lane); }
  std::span<const std::byte> inbox(uint32_t lane) const { return parts_.inbox->half(lane); }
  // Waits, over a stream, until what was published of it last is sent: an answer to it may come before the thread that sent it knows.
  std::span<std::byte> outbox(uint32_t lane) const {
    sending_[lane].wait(true, std::memory_order_acquire);
    return parts_.outbox->half(lane);
  }
  bool arrived(uint32_t lane) { return arrived_[lane].exchange(false); }  // a word, over a stream, since the last call
  // What is in the outbox counts from now on: `bytes` of it. Never waits.
  void publish(uint32_t lane, const ControlWord& word, size_t bytes);
  // Before its thread waits on the bell, and after.
  void sleeping(bool sleeps) const { parts_.inbox->set_sleeping(sleeps); }

  // ---- any thread ----
  void note(const Json& note);  // never waits
  bool broken() const { return broken_.load(std::memory_order_acquire); }
  void end();                   // breaks it
  bool streamed() const { return parts_.peer_bell == nullptr; }
  std::string_view kind() const { return streamed() ? parts_.in->kind() : "shared memory"; }  // for people

 private:
  struct Outgoing {
    std::string note;
    uint32_t lane = 0;
    ControlWord word;
    size_t bytes = 0;  // 0: a note
  };
  void read();
  Status read_half(const FrameHead& head);
  Status read_again(std::span<std::byte> there);
  void write();
  void sent(uint32_t lane);
  Status write_half(const Outgoing& half);
  void count(std::atomic<uint64_t> StreamBytes::*way, uint64_t bytes) const;

  const Parts parts_;
  const OnNote on_note_;
  std::vector<std::atomic<bool>> arrived_;
  std::vector<std::atomic<bool>> sending_;  // by lane: its half is read by the writer
  std::atomic<bool> broken_{false};
  std::mutex mutex_;
  std::condition_variable more_;
  std::deque<Outgoing> queue_;
  std::thread reader_, writer_;
};

}  // namespace shoal
