// How to sample, to bytes and back. What a peer sends is held to the ranges of base/request.h.
#include <algorithm>

#include "wire/codec_parts.h"

namespace shoal {
namespace {

using TokenLists = std::vector<std::vector<TokenId>>;

void to_pb(const TokenLists& from, google::protobuf::RepeatedPtrField<pb::TokenList>* to) {
  for (const std::vector<TokenId>& list : from) to->Add()->mutable_tokens()->Add(list.begin(), list.end());
}

void to_pb(const TokenRules& from, pb::TokenRules* to) {
  to->mutable_allowed()->Add(from.allowed.begin(), from.allowed.end());
  to_pb(from.bad_words, to->mutable_bad_words());
  to_pb(from.dry_breakers, to->mutable_dry_breakers());
}

StatusOr<TokenLists> lists_from(const google::protobuf::RepeatedPtrField<pb::TokenList>& from) {
  TokenLists to;
  for (const pb::TokenList& list : from) {
    if (list.tokens().empty()) return invalid_argument("message: an empty sequence of tokens");
    to.emplace_back(list.tokens().begin(), list.tokens().end());
  }
  return to;
}

StatusOr<TokenRules> from_pb(const pb::TokenRules& from) {
  TokenRules to;
  to.allowed.assign(from.allowed().begin(), from.allowed().end());
  if (!std::is_sorted(to.allowed.begin(), to.allowed.end())) return invalid_argument("message: allowed tokens are not in order");
  ASSIGN_OR_RETURN(to.bad_words, lists_from(from.bad_words()));
  ASSIGN_OR_RETURN(to.dry_breakers, lists_from(from.dry_breakers()));
  const auto by_last = [](const auto& a, const auto& b) { return a.back() < b.back(); };
  if (!std::is_sorted(to.dry_breakers.begin(), to.dry_breakers.end(), by_last)) return invalid_argument("message: breakers are not in order");
  return to;
}

StatusOr<GrammarRef> from_pb(const pb::Grammar& from) {
  if (from.gbnf().empty()) return invalid_argument("message: a grammar without text");
  Grammar to{from.gbnf(), {}};
  for (const std::string& trigger : from.triggers()) {
    if (trigger.empty()) return invalid_argument("message: a grammar with an empty trigger");
    to.triggers.push_back(trigger);
  }
  return GrammarRef(std::move(to));
}

StatusOr<DryPenalty> from_pb(const pb::Dry& from) {
  RETURN_IF_ERROR(finite(from.multiplier(), "dry.multiplier"));
  RETURN_IF_ERROR(finite(from.base(), "dry.base"));
  if (from.base() < 1) return invalid_argument("message: dry.base is below 1");
  return DryPenalty{from.multiplier(), from.base(), from.allowed_length(), from.window()};
}

StatusOr<Mirostat> from_pb(const pb::Mirostat& from) {
  RETURN_IF_ERROR(finite(from.tau(), "mirostat.tau"));
  RETURN_IF_ERROR(finite(from.eta(), "mirostat.eta"));
  if (from.version() > 2) return invalid_argument("message: no such version of mirostat");
  return Mirostat{from.version(), from.tau(), from.eta()};
}

// What is a number on its own.
Status check_numbers(const pb::Sampling& from) {
  const std::pair<float, const char*> numbers[] = {
      {from.temperature(), "temperature"}, {from.top_p(), "top_p"}, {from.min_p(), "min_p"}, {from.typical_p(), "typical_p"},
      {from.top_n_sigma(), "top_n_sigma"}, {from.xtc_probability(), "xtc_probability"}, {from.xtc_threshold(), "xtc_threshold"},
      {from.presence_penalty(), "presence_penalty"}, {from.frequency_penalty(), "frequency_penalty"},
      {from.repetition_penalty(), "repetition_penalty"}};
  for (const auto& [value, name] : numbers) RETURN_IF_ERROR(finite(value, name));
  if (from.temperature() < 0 || from.top_p() <= 0 || from.repetition_penalty() <= 0) {
    return invalid_argument("message: temperature, top_p or repetition_penalty out of range");
  }
  if (from.has_typical_p() && from.typical_p() <= 0) return invalid_argument("message: typical_p out of range");
  return OkStatus();
}

}  // namespace

void to_pb(const SamplingParams& from, pb::Sampling* to) {
  to->set_temperature(from.temperature);
  to->set_top_k(from.top_k);
  to->set_top_p(from.top_p);
  to->set_min_p(from.min_p);
  if (from.typical_p != 1.0f) to->set_typical_p(from.typical_p);
  to->set_top_n_sigma(from.top_n_sigma);
  to->set_xtc_probability(from.xtc_probability);
  to->set_xtc_threshold(from.xtc_threshold);
  to->set_presence_penalty(from.presence_penalty);
  to->set_frequency_penalty(from.frequency_penalty);
  to->set_repetition_penalty(from.repetition_penalty);
  if (from.dry.multiplier != 0) {
    pb::Dry* dry = to->mutable_dry();
    dry->set_multiplier(from.dry.multiplier);
    dry->set_base(from.dry.base);
    dry->set_allowed_length(from.dry.allowed_length);
    dry->set_window(from.dry.window);
  }
  if (from.mirostat.version != 0) {
    pb::Mirostat* mirostat = to->mutable_mirostat();
    mirostat->set_version(from.mirostat.version);
    mirostat->set_tau(from.mirostat.tau);
    mirostat->set_eta(from.mirostat.eta);
  }
  for (const auto& [token, bias] : from.logit_bias) {
    pb::LogitBias* entry = to->add_logit_bias();
    entry->set_token(token);
    entry->set_bias(bias);
  }
  if (from.rules) to_pb(*from.rules, to->mutable_rules());
  to->set_seed(from.seed);
  if (from.logprobs) to->set_logprobs(*from.logprobs);
  if (from.grammar) {
    to->mutable_grammar()->set_gbnf(from.grammar->gbnf);
    for (const std::string& trigger : from.grammar->triggers) to->mutable_grammar()->add_triggers(trigger);
  }
}

StatusOr<SamplingParams> sampling_from(const pb::Sampling& from) {
  RETURN_IF_ERROR(check_numbers(from));
  SamplingParams to;
  to.temperature = from.temperature();
  to.top_k = from.top_k();
  to.top_p = from.top_p();
  to.min_p = from.min_p();
  if (from.has_typical_p()) to.typical_p = from.typical_p();
  to.top_n_sigma = from.top_n_sigma();
  to.xtc_probability = from.xtc_probability();
  to.xtc_threshold = from.xtc_threshold();
  to.presence_penalty = from.presence_penalty();
  to.frequency_penalty = from.frequency_penalty();
  to.repetition_penalty = from.repetition_penalty();
  if (from.has_dry()) {
    ASSIGN_OR_RETURN(to.dry, from_pb(from.dry()));
  }
  if (from.has_mirostat()) {
    ASSIGN_OR_RETURN(to.mirostat, from_pb(from.mirostat()));
  }
  for (const pb::LogitBias& entry : from.logit_bias()) {
    if (std::isnan(entry.bias())) return invalid_argument("message: logit_bias is not a number");
    to.logit_bias.emplace_back(entry.token(), entry.bias());
  }
  if (from.has_rules()) {
    ASSIGN_OR_RETURN(to.rules, from_pb(from.rules()));
  }
  to.seed = from.seed();
  if (from.has_logprobs()) to.logprobs = from.logprobs();
  if (from.has_grammar()) {
    ASSIGN_OR_RETURN(to.grammar, from_pb(from.grammar()));
  }
  return to;
}

}  // namespace shoal
