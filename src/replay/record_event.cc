// An event as a record. A message in it is the message that crossed, by the same code.
#include "replay/record_codec.h"
#include "wire/codec_parts.h"

namespace shoal {
namespace {

// ---- to bytes -------------------------------------------------------------------------------------------------------

void put_failure(const Status& from, pb::Failure* to) {
  to->set_code(static_cast<uint32_t>(from.code()));
  to->set_message(std::string(from.message()));
}

void put_stages(const LoadStages& from, pb::LoadStages* to) {
  const auto& [unmap_seconds, map_seconds, open_seconds, read_seconds, repack_seconds, bytes_read, bytes_written, bytes_adopted] = from;
  to->set_unmap_seconds(unmap_seconds);
  to->set_map_seconds(map_seconds);
  to->set_open_seconds(open_seconds);
  to->set_read_seconds(read_seconds);
  to->set_repack_seconds(repack_seconds);
  to->set_bytes_read(bytes_read);
  to->set_bytes_written(bytes_written);
  to->set_bytes_adopted(bytes_adopted);
}

struct EventWriter {
  pb::Event& event;

  void operator()(const MessageFrom& e) {
    event.mutable_message()->set_from(e.from.value);
    to_pb(e.message, event.mutable_message()->mutable_message());
    event.mutable_message()->mutable_message()->set_life(e.life);
    event.mutable_message()->set_unknown_model(e.unknown_model);
  }
  void operator()(const StepDone& e) {
    pb::StepDone* to = event.mutable_step();
    to->set_model(e.model.value);
    to->set_step(e.result.step);
    if (!e.result.deferred.ok()) put_failure(e.result.deferred, to->mutable_deferred());
    if (e.result.experts != ExpertCounts{}) to_pb(e.result.experts, to->mutable_experts());
    to->set_away_ns(e.result.away.count());
    for (const SliceResult& slice : e.result.slices) {
      pb::SliceResult* out = to->add_slices();
      put_id(slice.request, out);
      out->set_finite(slice.finite);
      out->set_complete(slice.complete);
      if (!slice.error.ok()) put_failure(slice.error, out->mutable_error());
      for (const SampledToken& token : slice.sampled) to_pb(token, out->add_sampled());
      for (const SampledToken& token : slice.scored) to_pb(token, out->add_scored());
    }
  }
  template <typename End>
  void put_end(const End& e, pb::LoadEnded* to) {
    to->set_model(e.model.value);
    if (!e.status.ok()) put_failure(e.status, to->mutable_failure());
    put_stages(e.stages, to->mutable_stages());
    for (const PageSpan& span : e.whole) {
      to->add_whole()->set_first(span.first);
      to->mutable_whole()->rbegin()->set_count(span.count);
    }
  }
  void operator()(const WeightsReady& e) {
    put_end(e, event.mutable_weights());
    put_digest(e.weights, event.mutable_weights());
    event.mutable_weights()->set_packing(e.packing);
  }
  void operator()(const WeightsPacked& e) { put_end(e, event.mutable_packed()); }
  void operator()(const KvCopied& e) {
    event.mutable_copied()->set_model(e.model.value);
    event.mutable_copied()->set_move(e.move);
    event.mutable_copied()->set_ok(e.ok);
  }
  void operator()(const LoadProgress& e) {
    event.mutable_progress()->set_model(e.model.value);
    event.mutable_progress()->set_progress(e.progress);
  }
  void operator()(const ClusterChanged& e) {
    event.mutable_cluster()->set_version(e.state.version);
    for (const auto& [id, member] : e.state.members) {
      pb::Member* to = event.mutable_cluster()->add_members();
      to->set_id(id.value);
      to->set_role(static_cast<uint32_t>(member.role));
      to->set_epoch(member.epoch);
      to->set_draining(member.draining);
      for (const ModelId model : member.models) to->add_models(model.value);
    }
  }
  void operator()(const DigestKnown& e) {
    event.mutable_digest()->set_model(e.model.value);
    put_digest(e.weights, event.mutable_digest());
  }
  void operator()(const ModelAdded& e) { to_pb(e.model, event.mutable_added()); }
  void operator()(const ModelRetired& e) { event.set_retired(e.model.value); }
  void operator()(const PeerLost& e) { event.set_lost(e.peer.value); }
  void operator()(const PeerConnected& e) { event.set_connected(e.peer.value); }
  void operator()(const DrainRequested&) { event.mutable_drain(); }
  void operator()(const auto&) { event.mutable_tick(); }  // a tick, or an event that concerns no node, which is as good as one
};

// ---- from bytes -----------------------------------------------------------------------------------------------------

Status read_failure(const pb::Failure& from, Status& to) {
  if (from.code() > static_cast<uint32_t>(StatusCode::kUnauthenticated)) return invalid_argument("event: no such status");
  to = Status(static_cast<StatusCode>(from.code()), from.message());
  return OkStatus();
}

StatusOr<Event> step_from(const pb::StepDone& from) {
  StepDone to;
  to.model = ModelId(from.model());
  to.result.step = from.step();
  RETURN_IF_ERROR(read_failure(from.deferred(), to.result.deferred));
  ASSIGN_OR_RETURN(to.result.experts, from_pb(from.experts()));
  if (from.away_ns() < 0) return invalid_argument("event: a step was away for less than no time");
  to.result.away = Duration(from.away_ns());
  for (const pb::SliceResult& slice : from.slices()) {
    SliceResult& out = to.result.slices.emplace_back();
    out.request = id_of(slice);
    out.finite = slice.finite();
    out.complete = slice.complete();
    RETURN_IF_ERROR(read_failure(slice.error(), out.error));
    for (const pb::SampledToken& token : slice.sampled()) out.sampled.push_back(token_from(token));
    for (const pb::SampledToken& token : slice.scored()) out.scored.push_back(token_from(token));
  }
  return to;
}

// What both ends of a load begin with.
template <typename End>
StatusOr<End> load_end_from(const pb::LoadEnded& from) {
  End to;
  to.model = ModelId(from.model());
  RETURN_IF_ERROR(read_failure(from.failure(), to.status));
  const pb::LoadStages& s = from.stages();
  for (const double x : {s.unmap_seconds(), s.map_seconds(), s.open_seconds(), s.read_seconds(), s.repack_seconds()}) RETURN_IF_ERROR(finite(x, "a stage of a load"));
  to.stages = {s.unmap_seconds(), s.map_seconds(), s.open_seconds(), s.read_seconds(), s.repack_seconds(), s.bytes_read(), s.bytes_written(), s.bytes_adopted()};
  uint64_t at = 0;
  for (const pb::PageSpan& span : from.whole()) {
    if (span.first() < at) return invalid_argument("event: pages of a load are not in their order");
    at = uint64_t{span.first()} + span.count();
    to.whole.push_back({span.first(), span.count()});
  }
  return to;
}

StatusOr<Event> ready_from(const pb::LoadEnded& from) {
  ASSIGN_OR_RETURN(WeightsReady to, load_end_from<WeightsReady>(from));
  ASSIGN_OR_RETURN(to.weights, digest_of(from));
  to.packing = from.packing();
  return to;
}

StatusOr<Event> cluster_from(const pb::ClusterState& from) {
  ClusterChanged to;
  to.state.version = from.version();
  for (const pb::Member& member : from.members()) {
    if (member.role() > static_cast<uint32_t>(Role::kController)) return invalid_argument("event: no such role");
    Member& out = to.state.members[NodeId(member.id())];
    out = {.id = NodeId(member.id()), .role = static_cast<Role>(member.role()), .epoch = member.epoch(), .models = {}, .draining = member.draining()};
    for (const uint32_t model : member.models()) out.models.push_back(ModelId(model));
  }
  return to;
}

}  // namespace

void to_pb(const Event& from, pb::Event* to) { std::visit(EventWriter{*to}, from); }

StatusOr<Event> event_from(const pb::Event& from) {
  switch (from.kind_case()) {
    case pb::Event::kMessage: {
      ASSIGN_OR_RETURN(Message message, message_from(from.message().message()));
      return MessageFrom{NodeId(from.message().from()), std::move(message), from.message().message().life(), from.message().unknown_model()};
    }
    case pb::Event::kStep: return step_from(from.step());
    case pb::Event::kWeights: return ready_from(from.weights());
    case pb::Event::kPacked: {
      ASSIGN_OR_RETURN(WeightsPacked packed, load_end_from<WeightsPacked>(from.packed()));
      return packed;
    }
    case pb::Event::kCopied: return KvCopied{ModelId(from.copied().model()), from.copied().move(), from.copied().ok()};
    case pb::Event::kProgress:
      RETURN_IF_ERROR(finite(from.progress().progress(), "the progress of a load"));
      return LoadProgress{ModelId(from.progress().model()), from.progress().progress()};
    case pb::Event::kCluster: return cluster_from(from.cluster());
    case pb::Event::kAdded: {
      ASSIGN_OR_RETURN(NodeModel model, model_from(from.added()));
      return ModelAdded{std::move(model)};
    }
    case pb::Event::kLost: return PeerLost{NodeId(from.lost())};
    case pb::Event::kConnected: return PeerConnected{NodeId(from.connected())};
    case pb::Event::kRetired: return ModelRetired{ModelId(from.retired())};
    case pb::Event::kDigest: {
      ASSIGN_OR_RETURN(const ModelDigest weights, digest_of(from.digest()));
      return DigestKnown{ModelId(from.digest().model()), weights};
    }
    case pb::Event::kDrain: return DrainRequested{};
    case pb::Event::kTick: return Tick{};
    case pb::Event::KIND_NOT_SET: break;
  }
  return invalid_argument("event: of an unknown kind");
}

}  // namespace shoal
