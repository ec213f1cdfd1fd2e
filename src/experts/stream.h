// How a client and a server of experts reach each other: a stream for what is said (notes, JSON), and between machines also for halves of
// slots. On one machine it is a UNIX socket, over which descriptors go; else TCP with mutual TLS, one stream in each direction.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/status.h"
#include "transport/bulk_network.h"
#include "transport/local_socket.h"

namespace shoal {

constexpr size_t kNoteBytesMax = 4u << 20;

// Frames: {kind u32, lane u32, bytes u64}, then so many bytes.
enum class FrameKind : uint32_t { kNote = 0x31455853, kHalf = 0x32455853 };
struct FrameHead {
  uint32_t kind = 0, lane = 0;
  uint64_t bytes = 0;
};
Status write_note(BulkSocket& socket, const Json& note);
StatusOr<FrameHead> read_frame_head(BulkSocket& socket);
StatusOr<Json> read_note_body(BulkSocket& socket, const FrameHead& head);
StatusOr<Json> read_note(BulkSocket& socket);  // the next frame is one

// What a note that refuses says, as an error of its code, and back.
Json refusal(const Status& status);
Status status_of(const Json& note);  // OK if it refuses nothing

}  // namespace shoal
