#include "gateway/surfaces/responses_answer.h"

#include "gateway/model_access.h"
#include "nlohmann/json.hpp"

namespace shoal {
namespace {

using What = BlockEvent::What;

Json usage_json(const Usage& usage) {
  return {{"input_tokens", usage.prompt_tokens},
          {"input_tokens_details", {{"cached_tokens", usage.cached_tokens}, {"cache_write_tokens", 0}}},
          {"output_tokens", usage.completion_tokens},
          {"output_tokens_details", {{"reasoning_tokens", usage.reasoning_tokens}}},
          {"total_tokens", usage.prompt_tokens + usage.completion_tokens}};
}

// What a model wrote into the one text of a function that stands for a freeform tool.
std::string freeform_input(const std::string& arguments) {
  const auto parsed = parse_json(arguments, {.refuse_duplicate_keys = false});
  const bool text = parsed.ok() && parsed->is_object() && parsed->contains("input") && (*parsed)["input"].is_string();
  return text ? (*parsed)["input"].get<std::string>() : arguments;
}

Json text_part(const std::string& text, const Json& logprobs) {
  return {{"type", "output_text"}, {"text", text}, {"annotations", Json::array()}, {"logprobs", logprobs}};
}

Json reasoning_part(const std::string& text) { return {{"type", "reasoning_text"}, {"text", text}}; }

std::string_view prefix_of(BlockKind kind, bool freeform) {
  return kind == BlockKind::kReasoning ? "rs" : kind == BlockKind::kText ? "msg" : freeform ? "ctc" : "fc";
}

}  // namespace

ResponsesAnswer::ResponsesAnswer(std::string id, int64_t created, ResponsesRequest request, ResponseStore& store, Caller caller)
    : id_(std::move(id)), created_(created), request_(std::move(request)), store_(store), caller_(caller), turns_(request_.turns) {}

Json ResponsesAnswer::response(const char* status) const {
  Json out = request_.echo;
  out.update({{"id", id_}, {"object", "response"}, {"created_at", created_}, {"status", status}, {"output", output_},
              {"error", nullptr}, {"incomplete_details", nullptr}, {"usage", nullptr}});
  return out;
}

bool ResponsesAnswer::is_freeform(const BlockEvent& block) const {
  return block.kind == BlockKind::kCall && request_.freeform_tools.contains(block.name);
}

// As it begins (with `done` false: empty), or whole.
Json ResponsesAnswer::item(const BlockEvent& block, bool done) const {
  const bool freeform = is_freeform(block);
  Json out = {{"id", item_id(prefix_of(block.kind, freeform), id_, block.index)}, {"status", done ? "completed" : "in_progress"}};
  if (block.kind == BlockKind::kReasoning) {
    out.update({{"type", "reasoning"}, {"summary", Json::array()}, {"content", Json::array()}, {"encrypted_content", nullptr}});
    if (done) out["content"].push_back(reasoning_part(block.text));
  } else if (block.kind == BlockKind::kText) {
    out.update({{"type", "message"}, {"role", "assistant"}, {"content", Json::array()}});
    if (done) out["content"].push_back(text_part(block.text, logprobs_));
  } else if (freeform) {
    out.update({{"type", "custom_tool_call"}, {"call_id", block.id}, {"name", block.name}, {"input", done ? freeform_input(block.text) : ""}});
  } else {
    out.update({{"type", "function_call"}, {"call_id", block.id}, {"name", block.name}, {"arguments", done ? block.text : ""}});
    if (done && block.text.empty()) out["arguments"] = "{}";
  }
  return out;
}

void ResponsesAnswer::remember(const BlockEvent& block) {
  output_.push_back(item(block, /*done=*/true));
  if (block.kind == BlockKind::kReasoning) {
    turns_.think(block.text);
  } else if (block.kind == BlockKind::kText) {
    turns_.say("assistant", block.text);
  } else if (auto arguments = parse_ordered_json(block.text, {.refuse_duplicate_keys = false}); arguments.ok() && arguments->is_object()) {
    turns_.call(block.id, block.name, *std::move(arguments));
  } else {
    turns_.call(block.id, block.name, OrderedJson::object());
  }
}

Json ResponsesAnswer::finished(bool cut, const Generation& generation) {
  if (output_.empty()) remember({.what = What::kEnd, .kind = BlockKind::kText, .index = 0, .text = "", .name = "", .id = ""});
  if (cut) output_.back()["status"] = "incomplete";
  Json out = response(cut ? "incomplete" : "completed");
  if (cut) out["incomplete_details"] = {{"reason", "max_output_tokens"}};
  if (!cut) out["completed_at"] = unix_seconds();
  out["usage"] = usage_json(generation.usage());
  if (request_.store) store_.put(caller_, {id_, out, request_.input, turns_.messages()});
  return out;
}

std::string ResponsesAnswer::body(const std::vector<CollectedChoice>& choices, const Generation& generation) {
  logprobs_ = scored_tokens_json(choices.front().pieces);
  for (const BlockEvent& block : blocks_.push(whole_delta(choices.front()))) {
    if (block.what == What::kEnd) remember(block);
  }
  return dump_json(finished(choices.front().finish_reason == "length", generation));
}

void ResponsesAnswer::event(const std::string& name, Json data, std::string& out) {
  data["type"] = name;
  data["sequence_number"] = sequence_++;
  named_event(name, data, out);
}

void ResponsesAnswer::begin(const Generation&, std::string& out) {
  event("response.created", {{"response", response("in_progress")}}, out);
  event("response.in_progress", {{"response", response("in_progress")}}, out);
}

void ResponsesAnswer::write_begin(const BlockEvent& block, std::string& out) {
  const Json begun = item(block, /*done=*/false);
  event("response.output_item.added", {{"output_index", block.index}, {"item", begun}}, out);
  if (block.kind == BlockKind::kCall) return;
  const Json part = block.kind == BlockKind::kText ? text_part("", Json::array()) : reasoning_part("");
  event("response.content_part.added", {{"item_id", begun["id"]}, {"output_index", block.index}, {"content_index", 0}, {"part", part}}, out);
}

void ResponsesAnswer::write_end(const BlockEvent& block, std::string& out) {
  remember(block);
  const Json& done = output_.back();
  Json data = {{"item_id", done["id"]}, {"output_index", block.index}};
  if (block.kind == BlockKind::kCall) {
    if (is_freeform(block)) {
      data["delta"] = done["input"];
      event("response.custom_tool_call_input.delta", data, out);
      data.erase("delta");
      data["input"] = done["input"];
      event("response.custom_tool_call_input.done", data, out);
    } else {
      data["arguments"] = done["arguments"];
      data["name"] = block.name;
      event("response.function_call_arguments.done", data, out);
    }
  } else {
    data["content_index"] = 0;
    data["text"] = block.text;
    if (block.kind == BlockKind::kText) data["logprobs"] = logprobs_;
    event(block.kind == BlockKind::kText ? "response.output_text.done" : "response.reasoning_text.done", data, out);
    data.erase("text");
    data.erase("logprobs");
    data["part"] = done["content"][0];
    event("response.content_part.done", data, out);
  }
  event("response.output_item.done", {{"output_index", block.index}, {"item", done}}, out);
}

void ResponsesAnswer::write(const BlockEvent& block, const std::vector<ScoredPiece>& pieces, std::string& out) {
  if (block.what == What::kBegin) return write_begin(block, out);
  if (block.what == What::kEnd) return write_end(block, out);
  const bool freeform = is_freeform(block);
  if (freeform) return;  // its text is known when the JSON around it is whole
  Json data = {{"item_id", item_id(prefix_of(block.kind, freeform), id_, block.index)}, {"output_index", block.index}, {"delta", block.text}};
  if (block.kind == BlockKind::kCall) return event("response.function_call_arguments.delta", std::move(data), out);
  data["content_index"] = 0;
  if (block.kind == BlockKind::kReasoning) return event("response.reasoning_text.delta", std::move(data), out);
  data["logprobs"] = scored_tokens_json(pieces);
  event("response.output_text.delta", std::move(data), out);
}

void ResponsesAnswer::push(const Progress& progress, const Generation& generation, std::string& out) {
  for (const ChoiceUpdate& update : progress.updates) {
    const Json scored = scored_tokens_json(update.delta.pieces);
    logprobs_.insert(logprobs_.end(), scored.begin(), scored.end());
    for (const BlockEvent& block : blocks_.push(update.delta)) write(block, update.delta.pieces, out);
    if (!update.delta.finish || progress.failure) continue;
    const bool cut = finish_name(update.delta) == "length";
    event(cut ? "response.incomplete" : "response.completed", {{"response", finished(cut, generation)}}, out);
  }
  if (!progress.failure) return;
  Json failed = response("failed");
  failed["error"] = {{"code", progress.failure->code.value_or("server_error")}, {"message", progress.failure->message}};
  event("response.failed", {{"response", std::move(failed)}}, out);
}

}  // namespace shoal
