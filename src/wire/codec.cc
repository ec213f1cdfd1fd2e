#include <algorithm>

#include "wire/codec_parts.h"

namespace shoal {

void to_pb(const SampledToken& from, pb::SampledToken* to) {
  to->set_token(from.token);
  to->set_logprob(from.logprob);
  for (const TokenLogprob& alternative : from.top) {
    pb::TokenLogprob* entry = to->add_top();
    entry->set_token(alternative.token);
    entry->set_logprob(alternative.logprob);
  }
  to->set_rank(from.rank);
  if (from.mirostat_mu) to->set_mirostat_mu(*from.mirostat_mu);
}

SampledToken token_from(const pb::SampledToken& from) {
  SampledToken to{from.token(), from.logprob(), {}, from.rank(), std::nullopt};
  if (from.has_mirostat_mu() && std::isfinite(from.mirostat_mu())) to.mirostat_mu = from.mirostat_mu();
  for (const pb::TokenLogprob& entry : from.top()) to.top.push_back({entry.token(), entry.logprob()});
  return to;
}

namespace {

// ---- to bytes -------------------------------------------------------------------------------------------------------

void to_pb(const Request& from, pb::Request* to) {
  put_id(from.id, to);
  to->set_model(from.model.value);
  to->set_epoch(from.epoch);
  to->mutable_prompt()->Add(from.prompt.begin(), from.prompt.end());
  to->mutable_output()->Add(from.output.begin(), from.output.end());
  to_pb(from.sampling, to->mutable_sampling());
  to->set_max_tokens(from.max_tokens);
  to->set_min_tokens(from.min_tokens);
  to->mutable_stop_ids()->Add(from.stop_ids.begin(), from.stop_ids.end());
  if (from.prompt_logprobs) to->set_prompt_logprobs(*from.prompt_logprobs);
  to->set_priority(from.priority);
  to->set_payer(from.payer.number);
  to->set_payer_weight(from.payer.weight);
  if (from.ttft_max != Duration::max()) to->set_ttft_max_ns(static_cast<uint64_t>(from.ttft_max.count()));
  if (from.tbt_max != Duration::max()) to->set_tbt_max_ns(static_cast<uint64_t>(from.tbt_max.count()));
  put_digest(from.weights, to);
  if (from.mirostat_mu) to->set_mirostat_mu(*from.mirostat_mu);
}

void to_pb(const Tokens& from, pb::Tokens* to) {
  put_id(from.id, to);
  to->set_epoch(from.epoch);
  to->set_first_index(from.first_index);
  for (const SampledToken& token : from.tokens) to_pb(token, to->add_tokens());
  for (const SampledToken& token : from.prompt) to_pb(token, to->add_prompt());
  if (from.finish) to->set_finish(static_cast<uint32_t>(*from.finish));
  to->set_error(from.error);
  to->set_error_code(static_cast<uint32_t>(from.error_code));
  to->set_cached_prompt_tokens(from.cached_prompt_tokens);
  to->set_queued_ns(static_cast<uint64_t>(from.queued.count()));
  to->set_retry_after_ns(static_cast<uint64_t>(from.retry_after.count()));
  put_digest(from.weights, to);
}

void to_pb(const KvTicket& from, pb::KvTicket* to) {
  to->set_node(from.node.value);
  to->set_epoch(from.epoch);
  to->set_tokens(from.tokens);
  to->set_block_bytes(from.block_bytes);
  put_digest(from.weights, to);
}

struct EnvelopeWriter {
  pb::Envelope& envelope;

  void operator()(const Submit& m) {
    pb::Submit* to = envelope.mutable_submit();
    to_pb(m.request, to->mutable_request());
    to->set_waited_ns(static_cast<uint64_t>(m.waited.count()));
    if (m.kv) to_pb(*m.kv, to->mutable_kv());
  }
  void operator()(const Handover& m) {
    pb::Handover* to = envelope.mutable_handover();
    put_id(m.id, to);
    to->set_epoch(m.epoch);
    if (m.kv) to_pb(*m.kv, to->mutable_kv());
  }
  void operator()(const KvWanted& m) {
    put_id(m.id, envelope.mutable_kv_wanted());
    envelope.mutable_kv_wanted()->set_epoch(m.epoch);
  }
  void operator()(const KvGranted& m) {
    put_id(m.id, envelope.mutable_kv_granted());
    envelope.mutable_kv_granted()->set_epoch(m.epoch);
    for (const BlockId block : m.blocks) envelope.mutable_kv_granted()->add_blocks(block.value);
  }
  void operator()(const KvTaken& m) {
    put_id(m.id, envelope.mutable_kv_taken());
    envelope.mutable_kv_taken()->set_epoch(m.epoch);
    envelope.mutable_kv_taken()->set_passed_on(m.passed_on);
  }
  void operator()(const SetInstanceRole& m) { envelope.mutable_set_instance_role()->set_instance_role(static_cast<uint32_t>(m.instance_role)); }
  void operator()(const MigrateRequests& m) { envelope.mutable_migrate_requests()->set_model(m.model.value); }
  void operator()(const Cancel& m) {
    put_id(m.id, envelope.mutable_cancel());
    envelope.mutable_cancel()->set_epoch(m.epoch);
  }
  void operator()(const SetResident& m) {
    envelope.mutable_set_resident()->set_model(m.model.value);
    envelope.mutable_set_resident()->set_resident(m.resident);
  }
  void operator()(const Configure& m) {
    pb::Configure* to = envelope.mutable_configure();
    to->set_model(m.model.value);
    to_pb(m.settings, to->mutable_settings());
  }
  void operator()(const Tokens& m) { to_pb(m, envelope.mutable_tokens()); }
  void operator()(const NodeStatus& m) { to_pb(m, envelope.mutable_node_status()); }
};

// ---- from bytes: every number that a role relies on is checked here ---------------------------------------------------

Duration duration_of(uint64_t ns) { return Duration(static_cast<int64_t>(std::min<uint64_t>(ns, INT64_MAX))); }

StatusOr<Request> from_pb(const pb::Request& from) {
  Request to;
  to.id = id_of(from);
  to.model = ModelId(from.model());
  to.epoch = from.epoch();
  to.prompt.assign(from.prompt().begin(), from.prompt().end());
  to.output.assign(from.output().begin(), from.output().end());
  ASSIGN_OR_RETURN(to.sampling, sampling_from(from.sampling()));
  to.max_tokens = from.max_tokens();
  to.min_tokens = from.min_tokens();
  to.stop_ids.assign(from.stop_ids().begin(), from.stop_ids().end());
  if (from.has_prompt_logprobs()) to.prompt_logprobs = from.prompt_logprobs();
  to.priority = from.priority();
  to.payer = {from.payer(), std::clamp(from.payer_weight(), 1u, Payer::kWeightMax)};
  if (from.ttft_max_ns() > 0) to.ttft_max = duration_of(from.ttft_max_ns());
  if (from.tbt_max_ns() > 0) to.tbt_max = duration_of(from.tbt_max_ns());
  ASSIGN_OR_RETURN(to.weights, digest_of(from));
  if (from.has_mirostat_mu()) {
    RETURN_IF_ERROR(finite(from.mirostat_mu(), "mirostat_mu"));
    to.mirostat_mu = from.mirostat_mu();
  }
  return to;
}

StatusOr<Tokens> from_pb(const pb::Tokens& from) {
  Tokens to;
  to.id = id_of(from);
  to.epoch = from.epoch();
  to.first_index = from.first_index();
  for (const pb::SampledToken& token : from.tokens()) to.tokens.push_back(token_from(token));
  for (const pb::SampledToken& token : from.prompt()) to.prompt.push_back(token_from(token));
  if (from.has_finish()) {
    if (from.finish() > static_cast<uint32_t>(FinishReason::kError)) return invalid_argument("message: unknown finish reason");
    to.finish = static_cast<FinishReason>(from.finish());
  }
  to.error = from.error();
  if (from.error_code() > static_cast<uint32_t>(StatusCode::kUnauthenticated)) {
    return invalid_argument("message: unknown error code");
  }
  to.error_code = static_cast<StatusCode>(from.error_code());
  to.cached_prompt_tokens = from.cached_prompt_tokens();
  to.queued = duration_of(from.queued_ns());
  to.retry_after = duration_of(from.retry_after_ns());
  ASSIGN_OR_RETURN(to.weights, digest_of(from));
  return to;
}

StatusOr<KvTicket> from_pb(const pb::KvTicket& from) {
  if (from.tokens() == 0 || from.block_bytes() == 0) return invalid_argument("message: a ticket for nothing");
  ASSIGN_OR_RETURN(const ModelDigest weights, digest_of(from));
  return KvTicket{NodeId(from.node()), from.epoch(), from.tokens(), from.block_bytes(), weights};
}

StatusOr<Message> from_pb(const pb::Submit& from) {
  Submit to;
  ASSIGN_OR_RETURN(to.request, from_pb(from.request()));
  to.waited = duration_of(from.waited_ns());
  if (from.has_kv()) {
    ASSIGN_OR_RETURN(to.kv, from_pb(from.kv()));
  }
  return to;
}

StatusOr<Message> from_pb(const pb::Handover& from) {
  Handover to{id_of(from), from.epoch(), {}};
  if (from.has_kv()) {
    ASSIGN_OR_RETURN(to.kv, from_pb(from.kv()));
  }
  return to;
}

}  // namespace

void to_pb(const Message& from, pb::Envelope* to) { std::visit(EnvelopeWriter{*to}, from); }

StatusOr<Message> message_from(const pb::Envelope& envelope) {
  switch (envelope.kind_case()) {
    case pb::Envelope::kSubmit: return from_pb(envelope.submit());
    case pb::Envelope::kHandover: return from_pb(envelope.handover());
    case pb::Envelope::kKvWanted: return KvWanted{id_of(envelope.kv_wanted()), envelope.kv_wanted().epoch()};
    case pb::Envelope::kKvGranted: {
      KvGranted granted{id_of(envelope.kv_granted()), envelope.kv_granted().epoch(), {}};
      for (const uint32_t block : envelope.kv_granted().blocks()) granted.blocks.push_back(BlockId(block));
      return granted;
    }
    case pb::Envelope::kKvTaken:
      return KvTaken{id_of(envelope.kv_taken()), envelope.kv_taken().epoch(), envelope.kv_taken().passed_on()};
    case pb::Envelope::kMigrateRequests: return MigrateRequests{ModelId(envelope.migrate_requests().model())};
    case pb::Envelope::kSetInstanceRole: {
      ASSIGN_OR_RETURN(const InstanceRole instance_role, instance_role_from(envelope.set_instance_role().instance_role()));
      return SetInstanceRole{instance_role};
    }
    case pb::Envelope::kCancel: return Cancel{id_of(envelope.cancel()), envelope.cancel().epoch()};
    case pb::Envelope::kSetResident:
      return SetResident{ModelId(envelope.set_resident().model()), envelope.set_resident().resident()};
    case pb::Envelope::kConfigure: {
      ASSIGN_OR_RETURN(const PoolingSettings settings, settings_from(envelope.configure().settings()));
      return Configure{ModelId(envelope.configure().model()), settings};
    }
    case pb::Envelope::kTokens: {
      ASSIGN_OR_RETURN(Tokens tokens, from_pb(envelope.tokens()));
      return tokens;
    }
    case pb::Envelope::kNodeStatus: {
      ASSIGN_OR_RETURN(NodeStatus status, from_pb(envelope.node_status()));
      return status;
    }
    case pb::Envelope::KIND_NOT_SET: break;
  }
  return invalid_argument("message of an unknown kind; the peer speaks a newer protocol");
}

std::string encode(const Message& message, uint32_t life) {
  pb::Envelope envelope;
  to_pb(message, &envelope);
  envelope.set_life(life);
  return envelope.SerializeAsString();
}

Status parse(std::string_view bytes, pb::Envelope& envelope) {
  if (bytes.size() <= kMessageBytesMax && envelope.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) return OkStatus();
  return invalid_argument("message of ", bytes.size(), " bytes cannot be parsed: truncated, damaged or too long");
}

StatusOr<Message> decode(std::string_view bytes, uint32_t* life) {
  pb::Envelope envelope;
  RETURN_IF_ERROR(parse(bytes, envelope));
  if (life != nullptr) *life = envelope.life();
  return message_from(envelope);
}

std::string_view model_state_name(ModelState state) {
  switch (state) {
    case ModelState::kUnloaded: return "unloaded";
    case ModelState::kLoading: return "loading";
    case ModelState::kLoaded: return "loaded";
    case ModelState::kFailed: return "failed";
  }
  return "unknown";
}

}  // namespace shoal
