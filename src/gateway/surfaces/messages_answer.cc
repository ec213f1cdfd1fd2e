#include "gateway/surfaces/messages_answer.h"

#include "nlohmann/json.hpp"

namespace shoal {
namespace {

// Thinking is not signed here; what comes back in a next turn is read whatever its signature says.
constexpr char kSignature[] = "unsigned";

// Prompt tokens that came from the prefix cache are counted apart.
Json usage_json(const Usage& usage) {
  return {{"input_tokens", usage.prompt_tokens - std::min(usage.cached_tokens, usage.prompt_tokens)},
          {"cache_creation_input_tokens", 0},
          {"cache_read_input_tokens", usage.cached_tokens},
          {"output_tokens", usage.completion_tokens},
          {"output_tokens_details", {{"thinking_tokens", usage.reasoning_tokens}}}};
}

std::string stop_reason(std::string_view finish, const std::string& stop, const PreparedRequest& request) {
  if (!stop.empty()) return "stop_sequence";
  if (finish == "tool_calls") return "tool_use";
  if (finish == "length") return request.output.bound_by_context ? "model_context_window_exceeded" : "max_tokens";
  return "end_turn";
}

Json text_or_null(const std::string& text) { return text.empty() ? Json(nullptr) : Json(text); }

Json empty_block(const BlockEvent& block) {
  switch (block.kind) {
    case BlockKind::kReasoning: return {{"type", "thinking"}, {"thinking", ""}, {"signature", ""}};
    case BlockKind::kText: return {{"type", "text"}, {"text", ""}};
    case BlockKind::kCall: return {{"type", "tool_use"}, {"id", block.id}, {"name", block.name}, {"input", Json::object()}};
  }
  return nullptr;
}

Json whole_block(const BlockEvent& block) {
  Json out = empty_block(block);
  if (block.kind == BlockKind::kReasoning) {
    out["thinking"] = block.text;
    out["signature"] = kSignature;
  } else if (block.kind == BlockKind::kText) {
    out["text"] = block.text;
  } else if (const auto input = parse_json(block.text, {.refuse_duplicate_keys = false}); input.ok()) {
    out["input"] = *input;
  }
  return out;
}

Json delta_json(const BlockEvent& block) {
  switch (block.kind) {
    case BlockKind::kReasoning: return {{"type", "thinking_delta"}, {"thinking", block.text}};
    case BlockKind::kText: return {{"type", "text_delta"}, {"text", block.text}};
    case BlockKind::kCall: return {{"type", "input_json_delta"}, {"partial_json", block.text}};
  }
  return nullptr;
}

void write_block(const BlockEvent& event, std::string& out) {
  switch (event.what) {
    case BlockEvent::What::kBegin:
      named_event("content_block_start", {{"type", "content_block_start"}, {"index", event.index}, {"content_block", empty_block(event)}}, out);
      return;
    case BlockEvent::What::kPiece:
      named_event("content_block_delta", {{"type", "content_block_delta"}, {"index", event.index}, {"delta", delta_json(event)}}, out);
      return;
    case BlockEvent::What::kEnd:
      if (event.kind == BlockKind::kReasoning) {
        named_event("content_block_delta", {{"type", "content_block_delta"}, {"index", event.index},
                                            {"delta", {{"type", "signature_delta"}, {"signature", kSignature}}}}, out);
      }
      named_event("content_block_stop", {{"type", "content_block_stop"}, {"index", event.index}}, out);
  }
}

}  // namespace

Json MessagesAnswer::message() const {
  return {{"id", id_}, {"type", "message"}, {"role", "assistant"}, {"model", model_}, {"content", Json::array()},
          {"stop_reason", nullptr}, {"stop_sequence", nullptr}};
}

std::string MessagesAnswer::body(const std::vector<CollectedChoice>& choices, const Generation& generation) {
  const CollectedChoice& choice = choices.front();
  Json out = message();
  for (const BlockEvent& event : blocks_.push(whole_delta(choice))) {
    if (event.what == BlockEvent::What::kEnd) out["content"].push_back(whole_block(event));
  }
  out["stop_reason"] = stop_reason(choice.finish_reason, choice.stop, generation.request());
  out["stop_sequence"] = text_or_null(choice.stop);
  out["usage"] = usage_json(generation.usage());
  return dump_json(out);
}

void MessagesAnswer::begin(const Generation& generation, std::string& out) {
  Json begun = message();
  begun["usage"] = usage_json(generation.usage());
  begun["usage"]["output_tokens"] = 0;
  named_event("message_start", {{"type", "message_start"}, {"message", std::move(begun)}}, out);
}

void MessagesAnswer::ping(std::string& out) const { named_event("ping", {{"type", "ping"}}, out); }

void MessagesAnswer::push(const Progress& progress, const Generation& generation, std::string& out) {
  for (const ChoiceUpdate& update : progress.updates) {
    for (const BlockEvent& event : blocks_.push(update.delta)) write_block(event, out);
    if (!update.delta.finish || progress.failure) continue;
    const std::string reason = stop_reason(finish_name(update.delta), update.delta.stop, generation.request());
    named_event("message_delta", {{"type", "message_delta"},
                                  {"delta", {{"stop_reason", reason}, {"stop_sequence", text_or_null(update.delta.stop)}}},
                                  {"usage", usage_json(generation.usage())}}, out);
    named_event("message_stop", {{"type", "message_stop"}}, out);
  }
  if (progress.failure) {
    out += "event: error\n";
    plain_event(progress.failure->body(Surface::kAnthropic), out);
  }
}

}  // namespace shoal
