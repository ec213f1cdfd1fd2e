#include "replay/event_log.h"

#include "absl/strings/str_cat.h"
#include "base/rng.h"
#include "replay/record_codec.h"

namespace shoal {
namespace {

// Of everything that is put in, in order.
class Hash {
 public:
  void add(uint64_t x) { value_ = mix64(value_ ^ mix64(x)); }
  void add(const RequestId& id) {
    add(id.sequence);
    if (id.gateway.value != 0 || id.life != 0) add(id.gateway.value), add(id.life);
  }
  void add(std::string_view bytes) {
    add(bytes.size());
    for (const char c : bytes) add(static_cast<uint64_t>(static_cast<unsigned char>(c)));
  }
  template <typename List>
  void all(const List& list) {
    add(list.size());
    for (const auto& item : list) {
      if constexpr (requires { item.value; }) {
        add(item.value);
      } else {
        add(static_cast<uint64_t>(item));
      }
    }
  }
  std::string text() const { return absl::StrCat(" #", absl::Hex(value_, absl::kZeroPad16)); }

 private:
  uint64_t value_ = 0;
};

void add_pages(Hash& hash, const std::vector<PageRun>& pages) {
  for (const PageRun& run : pages) hash.add(run.first.value), hash.add(run.count);
}

std::string step_text(const StartStep& step) {
  Hash hash;
  hash.add(step.input.step);
  for (const StepSlice& s : step.input.slices) {
    hash.add(s.request), hash.add(s.begin), hash.all(s.tokens), hash.all(s.blocks), hash.add(s.prompt_length);
    if (!s.state_after.empty()) hash.all(s.state_before), hash.all(s.state_after), hash.all(s.state_kept), hash.add(s.kept_tokens), hash.all(s.tail_from);
    hash.add(s.sample), hash.add(s.output_index), hash.add(s.ban_stop_ids), hash.all(s.output), hash.add(s.score_begin), hash.add(s.score_end);
    hash.add(s.params->id), hash.add(s.params->epoch), hash.add(s.params->sampling.seed), hash.add(s.params->max_tokens);
  }
  return absl::StrCat("step of ", step.model.value, ": ", step.input.slices.size(), " sequences, ", step.input.rows(), " rows", hash.text());
}

std::string copy_text(const CopyKv& copy) {
  Hash hash;
  hash.add(copy.move.id), hash.add(copy.move.block_bytes);
  for (const KvCopy& c : copy.move.copies) hash.add(c.from.value), hash.add(c.to.value);
  return absl::StrCat("copy of ", copy.model.value, ": ", copy.move.copies.size(), " blocks of request ", copy.move.request.text(),
                      copy.move.to == Tier::kHost ? " out" : " in", copy.move.remote ? absl::StrCat(" from node ", copy.from.value) : "", hash.text());
}

std::string remap_text(const RemapSlabs& remap) {
  Hash hash;
  hash.add(static_cast<uint64_t>(remap.tier));
  for (const SlabChange& c : remap.changes) hash.add(c.block_bytes), hash.add(c.slab), hash.add(c.bound), add_pages(hash, c.pages);
  return absl::StrCat("remap of ", remap.changes.size(), " slabs", hash.text());
}

std::string send_text(const Send& send) {
  Hash hash;
  hash.add(encode(send.message));
  std::string what = absl::StrCat("message ", send.message.index());
  if (const auto* tokens = std::get_if<Tokens>(&send.message)) {
    what = absl::StrCat("tokens of request ", tokens->id.text(), " from ", tokens->first_index, ": ", tokens->tokens.size(), tokens->finish ? ", the last" : "");
  } else if (std::holds_alternative<NodeStatus>(send.message)) {
    what = "report";
  } else if (const auto* handover = std::get_if<Handover>(&send.message)) {
    what = absl::StrCat("hand-over of request ", handover->id.text());
  }
  return absl::StrCat(what, " to ", send.to.value, hash.text());
}

}  // namespace

std::string described(const Effect& effect) {
  if (const auto* e = std::get_if<Send>(&effect)) return send_text(*e);
  if (const auto* e = std::get_if<StartStep>(&effect)) return step_text(*e);
  if (const auto* e = std::get_if<LoadWeights>(&effect)) {
    Hash hash;
    add_pages(hash, e->pages);
    for (const PageSpan& span : e->whole) hash.add(span.first), hash.add(span.count);
    return absl::StrCat("load of ", e->model.value, hash.text());
  }
  if (const auto* e = std::get_if<CancelLoad>(&effect)) return absl::StrCat("load of ", e->model.value, " called off");
  if (const auto* e = std::get_if<ReadAhead>(&effect)) return absl::StrCat("read ahead of ", e->model.value);
  if (const auto* e = std::get_if<DropWeights>(&effect)) return absl::StrCat("drop of ", e->model.value);
  if (const auto* e = std::get_if<ReturnPages>(&effect)) {
    Hash hash;
    add_pages(hash, e->pages);
    return absl::StrCat("return of ", page_count(e->pages), e->tier == Tier::kHost ? " pages of the host tier" : " pages", hash.text());
  }
  if (const auto* e = std::get_if<RemapSlabs>(&effect)) return remap_text(*e);
  if (const auto* e = std::get_if<CopyKv>(&effect)) return copy_text(*e);
  if (const auto* e = std::get_if<WakeAt>(&effect)) return absl::StrCat("wake at ", e->at.time_since_epoch().count());
  return "an effect of no node";
}

std::string logged_config(const NodeConfig& config) {
  pb::Record record;
  record.set_node(config.self.value);
  to_pb(config, record.mutable_config());
  return record.SerializeAsString();
}

std::string logged_turn(NodeId node, const Event& event, TimePoint now, std::span<const Effect> effects) {
  pb::Record record;
  record.set_node(node.value);
  record.set_now_ns(now.time_since_epoch().count());
  to_pb(event, record.mutable_event());
  for (const Effect& effect : effects) record.add_decisions(described(effect));
  return record.SerializeAsString();
}

}  // namespace shoal
