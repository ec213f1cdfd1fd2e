#include "experts/stream.h"

#include "nlohmann/json.hpp"

namespace shoal {

Status write_note(BulkSocket& socket, const Json& note) {
  const std::string text = dump_json(note);
  const FrameHead head{static_cast<uint32_t>(FrameKind::kNote), 0, text.size()};
  std::string bytes(reinterpret_cast<const char*>(&head), sizeof(head));
  bytes += text;
  return socket.write(std::as_bytes(std::span(bytes.data(), bytes.size())));
}

StatusOr<FrameHead> read_frame_head(BulkSocket& socket) {
  FrameHead head;
  RETURN_IF_ERROR(socket.read(std::as_writable_bytes(std::span(&head, 1))));
  const bool known = head.kind == static_cast<uint32_t>(FrameKind::kNote) || head.kind == static_cast<uint32_t>(FrameKind::kHalf);
  if (!known) return invalid_argument("the peer speaks another protocol than experts'");
  return head;
}

StatusOr<Json> read_note_body(BulkSocket& socket, const FrameHead& head) {
  if (head.kind != static_cast<uint32_t>(FrameKind::kNote) || head.bytes > kNoteBytesMax) return invalid_argument("the peer sent something else than a note");
  std::string text(head.bytes, '\0');
  RETURN_IF_ERROR(socket.read(std::as_writable_bytes(std::span(text.data(), text.size()))));
  ASSIGN_OR_RETURN(Json note, parse_json(text, {.bytes_max = kNoteBytesMax, .depth_max = 16}));
  if (!note.is_object()) return invalid_argument("the peer sent a note that is no object");
  return note;
}

StatusOr<Json> read_note(BulkSocket& socket) {
  ASSIGN_OR_RETURN(const FrameHead head, read_frame_head(socket));
  return read_note_body(socket, head);
}

Json refusal(const Status& status) { return {{"error", std::string(status.message())}, {"code", static_cast<int>(status.code())}}; }

Status status_of(const Json& note) {
  const auto error = note.find("error");
  if (error == note.end()) return OkStatus();
  const auto code = json_int(note, "code", static_cast<int>(StatusCode::kUnknown), 1, 16);
  return Status(static_cast<StatusCode>(code.ok() ? *code : 2), error->is_string() ? error->get<std::string>() : "refused");
}

}  // namespace shoal
