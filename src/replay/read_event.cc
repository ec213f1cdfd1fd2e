#include "replay/read_event.h"

#include <bit>

#include "absl/strings/escaping.h"
#include "replay/fields.h"

namespace shoal {
namespace {

Status wrong(const char* what) { return invalid_argument("event: ", what); }

// The items of an array of exactly so many.
Status items(const Json& json, size_t count) {
  return json.is_array() && json.size() == count ? OkStatus() : wrong("a list is not as long as it must be");
}

Status read_float_bits(const Json& json, float& out) {
  uint32_t bits = 0;
  RETURN_IF_ERROR(read(json, bits));
  out = std::bit_cast<float>(bits);
  return OkStatus();
}

Status read_tokens(const Json& json, std::vector<SampledToken>& out) {
  if (!json.is_array() || json.size() > kListMax) return wrong("tokens are not a list");
  for (const Json& item : json) {
    if (!item.is_array() || item.size() < 3 || item.size() > 5) return wrong("a token is not a list of three to five");
    SampledToken& token = out.emplace_back();
    RETURN_IF_ERROR(read(item[0], token.token));
    RETURN_IF_ERROR(read_float_bits(item[1], token.logprob));
    if (!item[2].is_array()) return wrong("alternatives are not a list");
    for (const Json& one : item[2]) {
      RETURN_IF_ERROR(items(one, 2));
      TokenLogprob& top = token.top.emplace_back();
      RETURN_IF_ERROR(read(one[0], top.token));
      RETURN_IF_ERROR(read_float_bits(one[1], top.logprob));
    }
    if (item.size() > 3) RETURN_IF_ERROR(read(item[3], token.rank));  // runs recorded before have none
    if (item.size() > 4) RETURN_IF_ERROR(read_float_bits(item[4], token.mirostat_mu.emplace()));
  }
  return OkStatus();
}

Status read_status(const Json& json, Status& out) {
  RETURN_IF_ERROR(items(json, 2));
  int code = 0;
  std::string message;
  RETURN_IF_ERROR(read(json[0], code));
  RETURN_IF_ERROR(read(json[1], message));
  if (code < 0 || code > static_cast<int>(StatusCode::kUnauthenticated)) return wrong("no such status");
  out = Status(static_cast<StatusCode>(code), message);
  return OkStatus();
}

StatusOr<Event> read_step(const Json& json) {
  const bool deferred = json.size() == 5;
  RETURN_IF_ERROR(items(json, deferred ? 5 : 4));
  StepDone done;
  if (deferred) RETURN_IF_ERROR(read_status(json[4], done.result.deferred));
  RETURN_IF_ERROR(read(json[1], done.model));
  RETURN_IF_ERROR(read(json[2], done.result.step));
  if (!json[3].is_array()) return wrong("slices are not a list");
  for (const Json& item : json[3]) {
    RETURN_IF_ERROR(items(item, 6));
    SliceResult& slice = done.result.slices.emplace_back();
    RETURN_IF_ERROR(read(item[0], slice.request));
    RETURN_IF_ERROR(read(item[1], slice.finite));
    RETURN_IF_ERROR(read(item[2], slice.complete));
    RETURN_IF_ERROR(read_status(item[3], slice.error));
    RETURN_IF_ERROR(read_tokens(item[4], slice.sampled));
    RETURN_IF_ERROR(read_tokens(item[5], slice.scored));
  }
  return done;
}

StatusOr<Event> read_cluster(const Json& json) {
  RETURN_IF_ERROR(items(json, 3));
  ClusterChanged changed;
  RETURN_IF_ERROR(read(json[1], changed.state.version));
  if (!json[2].is_array()) return wrong("members are not a list");
  for (const Json& item : json[2]) {
    RETURN_IF_ERROR(items(item, 5));
    Member member;
    int role = 0;
    RETURN_IF_ERROR(read(item[0], member.id));
    RETURN_IF_ERROR(read(item[1], role));
    RETURN_IF_ERROR(read(item[2], member.epoch));
    RETURN_IF_ERROR(read(item[3], member.draining));
    RETURN_IF_ERROR(read(item[4], member.models));
    if (role < 0 || role > static_cast<int>(Role::kController)) return wrong("no such role");
    member.role = static_cast<Role>(role);
    changed.state.members[member.id] = std::move(member);
  }
  return changed;
}

StatusOr<Event> read_message(const Json& json) {
  RETURN_IF_ERROR(items(json, 3));
  NodeId from;
  std::string text, bytes;
  RETURN_IF_ERROR(read(json[1], from));
  RETURN_IF_ERROR(read(json[2], text));
  if (!absl::Base64Unescape(text, &bytes)) return wrong("a message is not Base64");
  ASSIGN_OR_RETURN(Message message, decode(bytes));
  return MessageFrom{from, std::move(message)};
}

// What both ends of a load begin with.
template <typename End>
Status read_load_end(const Json& json, End& end) {
  RETURN_IF_ERROR(read(json[1], end.model));
  RETURN_IF_ERROR(read_status(json[2], end.status));
  return read(json[3], end.stages);
}

StatusOr<Event> read_weights(const Json& json) {
  RETURN_IF_ERROR(items(json, 6));
  WeightsReady ready;
  RETURN_IF_ERROR(read_load_end(json, ready));
  RETURN_IF_ERROR(read(json[4], ready.weights));
  RETURN_IF_ERROR(read(json[5], ready.packing));
  return ready;
}

StatusOr<Event> read_packed(const Json& json) {
  RETURN_IF_ERROR(items(json, 4));
  WeightsPacked packed;
  RETURN_IF_ERROR(read_load_end(json, packed));
  return packed;
}

StatusOr<Event> read_copied(const Json& json) {
  RETURN_IF_ERROR(items(json, 4));
  KvCopied copied;
  RETURN_IF_ERROR(read(json[1], copied.model));
  RETURN_IF_ERROR(read(json[2], copied.move));
  RETURN_IF_ERROR(read(json[3], copied.ok));
  return copied;
}

StatusOr<Event> read_progress(const Json& json) {
  RETURN_IF_ERROR(items(json, 3));
  LoadProgress progress;
  RETURN_IF_ERROR(read(json[1], progress.model));
  RETURN_IF_ERROR(read(json[2], progress.progress));
  return progress;
}

StatusOr<Event> read_added(const Json& json) {
  RETURN_IF_ERROR(items(json, 2));
  ModelAdded added;
  RETURN_IF_ERROR(read(json[1], added.model));
  return added;
}

StatusOr<Event> read_retired(const Json& json) {
  RETURN_IF_ERROR(items(json, 2));
  ModelRetired retired;
  RETURN_IF_ERROR(read(json[1], retired.model));
  return retired;
}

}  // namespace

StatusOr<Event> read_event(const Json& json) {
  if (!json.is_array() || json.empty() || !json[0].is_string()) return wrong("is not a list that begins with its kind");
  const auto& kind = json[0].get_ref<const std::string&>();
  if (kind == "message") return read_message(json);
  if (kind == "step") return read_step(json);
  if (kind == "weights") return read_weights(json);
  if (kind == "packed") return read_packed(json);
  if (kind == "copied") return read_copied(json);
  if (kind == "progress") return read_progress(json);
  if (kind == "add") return read_added(json);
  if (kind == "retire") return read_retired(json);
  if (kind == "cluster") return read_cluster(json);
  if (kind == "drain") return Event(DrainRequested{});
  if (kind == "tick") return Event(Tick{});
  return wrong("no such kind");
}

}  // namespace shoal
