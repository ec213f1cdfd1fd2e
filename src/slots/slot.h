// The two ends of a slot as state machines: what a control word and the bytes behind it mean to whoever polls them. They keep numbers
// and states, no bytes and no time.
//
//   client   idle -> submitted -> idle            the answer came
//                       '-> quarantined -> idle   its request was given up; the slot is used again only once the late answer came
//                             '--------------- connect(): a new epoch, in memory that nobody of the old one writes to
//   server   attached -> serving -> attached      one request at a time; the same one again is answered from what was published
//                '-> offline                      detached; attach(): a new epoch
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/status.h"
#include "slots/control_word.h"
#include "slots/message.h"

namespace shoal {

class ClientSlot {
 public:
  enum class State : uint8_t { kIdle, kSubmitted, kQuarantined };
  enum class Heard : uint8_t {
    kNothing,  // nothing new, or something of another request
    kAnswer,   // `view` is what was asked for; the slot is idle
    kLate,     // the answer to what was given up: the slot is idle again, and the answer nobody's
    kTorn,     // not whole (yet): look again
    kBad,      // sealed by the server and senseless, or not what was asked for: `why` says it. The connection is to be ended
  };

  // Begins a connection's life. REQUIRES: epoch != that of any connection before whose writes may still come.
  // `client` and `lane` are what answers repeat.
  void connect(uint16_t epoch, uint64_t client, uint16_t lane);

  // The next request: its numbers are of this word, which is stored last. REQUIRES: idle.
  ControlWord submit(SlotKind kind, uint16_t layer, uint32_t rows, uint32_t width);
  // Nobody waits for it any more. REQUIRES: submitted.
  void give_up();
  // What lies in the response half. Neither answer is given twice.
  Heard hear(uint64_t control, std::span<const std::byte> slot, ResponseView& view, Status& why);

  State state() const { return state_; }
  uint16_t epoch() const { return epoch_; }
  uint32_t seq() const { return seq_; }  // of the last request

 private:
  State state_ = State::kIdle;
  uint16_t epoch_ = 0;
  uint32_t seq_ = 0;
  uint64_t client_ = 0;
  uint16_t lane_ = 0;
  uint16_t layer_ = 0;             // of the last request, as the next two
  uint32_t rows_ = 0, width_ = 0;

  bool answers(const ResponseHead& head) const;
};

class ServerSlot {
 public:
  enum class Found : uint8_t {
    kNothing,    // nothing new, or something of another epoch
    kRequest,    // `view` is to be computed and answered
    kEmpty,      // to be answered with no rows
    kRepublish,  // answered already: the same answer, whose bytes are still there, is to be published once more
    kDetach,     // its client left
    kTorn,       // not whole (yet): look again
    kBad,        // to be answered with kBadRequest; `why` says it
  };

  void attach(uint16_t epoch);
  void detach() { state_ = State::kOffline; }

  // What lies in the request half. `arrived`: the word was written since the last look, as a transport of messages knows.
  Found look(uint64_t control, std::span<const std::byte> slot, const RequestLimits& limits, bool arrived, RequestView& view, Status& why);
  // The request that was found last is answered: the word that is stored last. REQUIRES: one was found, and not answered.
  ControlWord answer();
  ControlWord answered() const { return {seq_, epoch_, SlotKind::kRequest, SlotState::kDone}; }  // once more

  bool serving() const { return state_ == State::kServing; }
  bool offline() const { return state_ == State::kOffline; }
  uint32_t seq() const { return seq_; }  // of the last request that was found
  uint16_t epoch() const { return epoch_; }

 private:
  enum class State : uint8_t { kAttached, kServing, kOffline };
  State state_ = State::kOffline;
  uint16_t epoch_ = 0;
  uint32_t seq_ = 0;
};

}  // namespace shoal
