// The word that makes a slot's contents count: 64 bits, naturally aligned, stored last and loaded first.
//
//   seq:32 | epoch:16 | kind:8 | state:8, from the highest bit down
//
// Ordering. Who writes a slot stores head, payload and tail, and then the word with release; who reads it loads the word with acquire
// and then the rest. On one machine that suffices: what the release store follows is visible to whoever loads that value with acquire
// (the word is one aligned 8-byte store, so it is never torn). Over a transport that delivers writes out of order, or not at all, the
// word may come before what it speaks of: the tail repeats seq and epoch beside a checksum of head and payload (slots/message.h), so
// a reader that finds the word alone sees a torn slot and looks again. No word has two writers, so none is compared and swapped.
#pragma once

#include <cstdint>
#include <optional>

namespace shoal {

enum class SlotKind : uint8_t {
  kRequest = 1,
  kEmpty = 2,   // no rows: a probe of the connection
  kDetach = 3,  // its client leaves; nothing follows in this epoch
};

// The four states of the published protocol (arXiv 2509.17863). A word that is stored says written or done; idle and offline are what
// its reader makes of it.
enum class SlotState : uint8_t { kIdle = 0, kWritten = 1, kDone = 2, kOffline = 3 };

struct ControlWord {
  uint32_t seq = 0;    // from 1 on, one more for each request of the slot in this epoch
  uint16_t epoch = 0;  // of the connection: what a broken one still writes is of another
  SlotKind kind = SlotKind::kRequest;
  SlotState state = SlotState::kIdle;
  friend bool operator==(const ControlWord&, const ControlWord&) = default;
};

constexpr uint64_t pack(const ControlWord& word) {
  return uint64_t{word.seq} << 32 | uint64_t{word.epoch} << 16 | uint64_t{static_cast<uint8_t>(word.kind)} << 8 | static_cast<uint8_t>(word.state);
}

// Nothing for what pack() does not make: the zeros of fresh memory, and damage.
constexpr std::optional<ControlWord> unpack(uint64_t bits) {
  const auto kind = static_cast<uint8_t>(bits >> 8), state = static_cast<uint8_t>(bits);
  if (kind < 1 || kind > 3 || state < 1 || state > 2) return std::nullopt;
  return ControlWord{static_cast<uint32_t>(bits >> 32), static_cast<uint16_t>(bits >> 16), static_cast<SlotKind>(kind), static_cast<SlotState>(state)};
}

}  // namespace shoal
