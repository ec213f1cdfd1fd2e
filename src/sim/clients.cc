#include "sim/clients.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "sim/device.h"

namespace shoal {

Clients::Clients(const std::vector<NodeModel>& models, bool strict, Outcome& outcome, Violate violate)
    : models_(models), strict_(strict), outcome_(outcome), violate_(std::move(violate)) {
  outcome_.models.resize(models.size());
  heard_.resize(models.size());
}

void Clients::start(const Arrival& arrival, TimePoint now) {
  const Request& r = arrival.request;
  const NodeModel& model = models_.at(r.model.value);
  Client client{r.model, r.payer.number, static_cast<uint32_t>(r.prompt.size()), r.max_tokens, r.min_tokens, arrival.answer_tokens > 0 ? arrival.answer_tokens : r.max_tokens, r.stop_ids, r.sampling.seed, 0,
                TokenScore(model.pooling.slo, now), now, now};
  if (strict_) {
    client.context = kEmptyContext;
    for (const TokenId token : r.prompt) client.context = extend_context(client.context, token);
  }
  if (!clients_.emplace(r.id, std::move(client)).second) violate_(absl::StrCat("the workload uses id ", r.id.text(), " twice"));
  ++unstarted_;
  ++outcome_.requests;
  Heard& heard = heard_[r.model.value];
  if (heard.requests++ == 0) heard.at = now;
}

bool Clients::cancel(RequestId id, TimePoint now) {
  const auto found = clients_.find(id);
  if (found == clients_.end()) return false;
  ++outcome_.cancelled;
  end(found, "cancelled", OkStatus(), now);
  return true;
}

void Clients::cancel_of(NodeId gateway, TimePoint now) {
  std::vector<RequestId> ids;
  for (const auto& [id, client] : clients_) {
    if (id.gateway == gateway) ids.push_back(id);
  }
  std::sort(ids.begin(), ids.end());
  for (const RequestId id : ids) cancel(id, now);
}

void Clients::check_token(RequestId id, Client& c, TokenId token) {
  const auto vocab = models_[c.model.value].vocab_size;
  TokenId expected = simulated_token(c.model, c.context, c.seed, c.received, vocab);
  const auto is_stop = [&](TokenId t) { return std::find(c.stop_ids.begin(), c.stop_ids.end(), t) != c.stop_ids.end(); };
  while (c.received < c.min_tokens && is_stop(expected)) expected = (expected + 1) % static_cast<TokenId>(vocab);
  if (token != expected) violate_(absl::StrCat("request ", id.text(), " got another token at ", c.received));
  c.context = extend_context(c.context, token);
}

void Clients::note_silence(ModelId model, TimePoint now) {
  double& longest = outcome_.models[model.value].silent_seconds_max;
  longest = std::max(longest, to_seconds(now - heard_[model.value].at));
}

void Clients::add_token(RequestId id, Client& c, TokenId token, TimePoint now) {
  if (strict_) check_token(id, c, token);
  c.score.add_token(now);
  note_silence(c.model, now);
  heard_[c.model.value].at = now;
  const double waited = to_seconds(now - c.last_token);
  if (c.received == 0) {
    c.first_token = to_seconds(now.time_since_epoch());
    outcome_.first_token.add(waited);
    outcome_.models[c.model.value].first_token.add(waited);
    outcome_.first_token_seconds_max = std::max(outcome_.first_token_seconds_max, waited);
    --unstarted_;
  } else {
    outcome_.gap.add(waited);
    outcome_.gap_seconds_max = std::max(outcome_.gap_seconds_max, waited);
  }
  c.last_token = now;
  c.last = token;
  ++c.received;
  ++outcome_.tokens;
}

void Clients::deliver(const Tokens& tokens, TimePoint now) {
  last_heard_ = now;
  const auto found = clients_.find(tokens.id);
  const std::string name = absl::StrCat("request ", tokens.id.text());
  if (found == clients_.end()) return violate_(absl::StrCat("I4: ", name, " got tokens after its end"));
  Client& c = found->second;
  if (tokens.first_index != c.received) return violate_(absl::StrCat("I1: ", name, " got index ", tokens.first_index, " for ", c.received));
  for (const SampledToken& token : tokens.tokens) add_token(tokens.id, c, token.token, now);
  if (!tokens.finish) return;
  if (*tokens.finish == FinishReason::kError) {
    ++outcome_.refused;
    return end(found, "error", Status(tokens.error_code, tokens.error), now);
  }
  const bool stopped = c.received > c.min_tokens && std::find(c.stop_ids.begin(), c.stop_ids.end(), c.last) != c.stop_ids.end();
  const bool full = c.received == c.max_tokens || c.prompt_tokens + c.received == models_[c.model.value].max_model_len;
  if (!stopped && !full) violate_(absl::StrCat("I2: ", name, " finished early at ", c.received));
  ++outcome_.finished;
  end(found, *tokens.finish == FinishReason::kStop ? "stop" : "length", OkStatus(), now);
}

void Clients::refuse(const Refuse& refuse, TimePoint now) {
  last_heard_ = now;
  const auto found = clients_.find(refuse.id);
  if (found == clients_.end()) return violate_(absl::StrCat("I4: request ", refuse.id.text(), " was refused after its end"));
  ++outcome_.refused;
  end(found, "refused", refuse.status, now);
}

void Clients::end(Entry entry, const char* how, const Status& why, TimePoint now) {
  const Client& c = entry->second;
  if (std::string_view(how) != "cancelled") {
    const bool done = how == std::string_view("stop") || how == std::string_view("length");
    outcome_.attainment.add(c.score, done, c.answer_tokens);
    outcome_.models[c.model.value].attainment.add(c.score, done, c.answer_tokens);
    outcome_.payers[c.payer].add(c.score, done, c.answer_tokens);
  }
  if (!why.ok()) {
    constexpr size_t kKindsMax = 64;
    std::string kind(why.message());
    std::erase_if(kind, [](char c) { return c >= '0' && c <= '9'; });
    if (outcome_.failures.size() < kKindsMax || outcome_.failures.contains(kind)) ++outcome_.failures[kind];
  }
  if (on_end_) {
    const auto seconds = [](TimePoint t) { return to_seconds(t.time_since_epoch()); };
    on_end_({entry->first, c.model, c.prompt_tokens, c.received, static_cast<uint32_t>(c.score.on_time()), seconds(c.arrival), c.first_token,
             seconds(now), how}, why);
  }
  note_silence(c.model, now);
  --heard_[c.model.value].requests;
  unstarted_ -= c.received == 0;
  clients_.erase(entry);
}

void Clients::check_end() {
  std::vector<RequestId> left;
  for (const auto& [id, client] : clients_) left.push_back(id);
  std::sort(left.begin(), left.end());
  for (const RequestId id : left) violate_(absl::StrCat("I4: request ", id.text(), " never ended"));
}

}  // namespace shoal
