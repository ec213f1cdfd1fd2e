#include "text/answers/call_reader.h"

#include <algorithm>

#include "nlohmann/json.hpp"
#include "text/answers/loose_values.h"
#include "text/answers/space.h"

namespace shoal {
namespace {

constexpr size_t kNameBytesMax = 128;
constexpr size_t kKeyBytesMax = 1024;
constexpr std::string_view kGemmaQuote = "<|\"|>";
constexpr std::string_view kXmlMark = "]<]minimax[>[";
constexpr std::string_view kCallId = "[CALL_ID]";

bool is_alnum(char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
bool is_name_byte(char c) { return is_alnum(c) || c == '_' || c == '-' || c == '.'; }

// A JSON string with its quotes, as text.
std::string unquoted(const std::string& json) {
  const auto parsed = parse_ordered_json(json);
  return parsed.ok() && parsed->is_string() ? parsed->get<std::string>() : std::string();
}

}  // namespace

bool is_tool_name(std::string_view name) {
  return !name.empty() && name.size() <= kNameBytesMax && std::all_of(name.begin(), name.end(), is_name_byte);
}

CallReader::CallReader(const CallSyntax& syntax, const ToolList& tools, uint32_t index)
    : syntax_(syntax), tools_(tools), index_(index),
      state_(syntax.shape == CallShape::kJsonCall ? State::kJsonCall : State::kName) {}

CallReader::Status CallReader::read(std::string_view& text, AnswerDelta& out) {
  while (true) {
    switch (step(text, out)) {
      case Step::kOn: break;
      case Step::kMore: return Status::kMore;
      case Step::kDone: return Status::kDone;
      case Step::kBroken: return Status::kBroken;
    }
  }
}

CallReader::Step CallReader::step(std::string_view& text, AnswerDelta& out) {
  if (may_skip_space()) text = trim_left(text);
  switch (state_) {
    case State::kJsonCall: return json_call(text, out);
    case State::kName: return name(text);
    case State::kNameEnd: {
      if (syntax_.short_ids) {
        const Step id = literal(kCallId, text, State::kCallId);
        if (id != Step::kBroken) return id;
      }
      const Step ended = literal(syntax_.name_end, text, syntax_.index_end.empty() ? State::kEnd : State::kIndex);
      return ended == Step::kOn && syntax_.index_end.empty() ? name_ended() : ended;
    }
    case State::kCallId: return run(id_, State::kNameEnd, text);
    case State::kIndex: return run(number_, State::kIndexEnd, text);
    case State::kIndexEnd: {
      const Step ended = literal(syntax_.index_end, text, State::kEnd);
      return ended == Step::kOn ? name_ended() : ended;
    }
    case State::kArguments: return arguments(text, out);
    case State::kKeyOrEnd: return key_or_end(text, out);
    case State::kKey: return until(syntax_.key_end, key_, syntax_.attribute_end.empty() ? State::kValue : State::kAttribute, text);
    case State::kAttribute: return until(syntax_.attribute_end, attribute_, State::kValue, text);
    case State::kValue: return value(text, out);
    case State::kBody: return body(text, out);
    case State::kEnd: {
      const Step ended = literal(syntax_.end, text, State::kEnd);
      return ended == Step::kMore ? Step::kMore : Step::kDone;  // models forget it
    }
  }
  return Step::kBroken;
}

CallReader::Step CallReader::name(std::string_view& text) {
  const size_t size = static_cast<size_t>(std::find_if_not(text.begin(), text.end(), is_name_byte) - text.begin());
  name_.append(text.substr(0, size));
  text.remove_prefix(size);
  if (name_.size() > kNameBytesMax || (name_.empty() && !text.empty())) return Step::kBroken;
  if (text.empty()) return Step::kMore;
  state_ = State::kNameEnd;
  return Step::kOn;
}

// Letters and digits.
CallReader::Step CallReader::run(std::string& out, State next, std::string_view& text) {
  for (; !text.empty() && is_alnum(text[0]); text.remove_prefix(1)) out += text[0];
  if (out.size() > kNameBytesMax) return Step::kBroken;
  if (text.empty()) return Step::kMore;
  state_ = next;
  return Step::kOn;
}

// Anything up to `end`.
CallReader::Step CallReader::until(std::string_view end, std::string& out, State next, std::string_view& text) {
  end = trim(end);
  while (!text.empty()) {
    const MatchResult match = match_literal(end, text);
    if (match.match == Match::kPartial) return Step::kMore;
    if (match.match == Match::kFull) {
      text.remove_prefix(match.bytes);
      state_ = next;
      return Step::kOn;
    }
    out += text[0];
    text.remove_prefix(1);
    if (out.size() > kKeyBytesMax) return Step::kBroken;
  }
  return Step::kMore;
}

// White space may stand before everything but the text of names, keys and values.
bool CallReader::may_skip_space() const {
  switch (state_) {
    case State::kName: return name_.empty();
    case State::kArguments: return scanner_.depth() == 0;
    case State::kBody: return value_.empty();
    case State::kJsonCall:
    case State::kKey:
    case State::kAttribute:
    case State::kValue: return false;
    default: return true;
  }
}

CallReader::Step CallReader::literal(std::string_view wanted, std::string_view& text, State next) {
  const MatchResult match = match_literal(wanted, text);
  if (match.match == Match::kNo) return Step::kBroken;
  if (match.match == Match::kPartial) return Step::kMore;
  text.remove_prefix(match.bytes);
  state_ = next;
  return Step::kOn;
}

CallReader::Step CallReader::name_ended() {
  if (syntax_.id_from_index) id_ = absl::StrCat("functions.", name_, ":", number_);
  switch (syntax_.shape) {
    case CallShape::kTagged: state_ = State::kKeyOrEnd; break;
    case CallShape::kXml:
    case CallShape::kPython:
    case CallShape::kGemma: state_ = State::kBody; break;
    default: state_ = State::kArguments; break;
  }
  return Step::kOn;
}

bool CallReader::begin(AnswerDelta& out) {
  if (begun_) return true;
  const bool offered = std::any_of(tools_.begin(), tools_.end(), [&](const ToolSpec& tool) { return tool.name == name_; });
  if (!is_tool_name(name_) || (syntax_.bare && !offered)) return false;  // without markers only the name tells
  begun_ = true;
  out.calls.push_back({.index = index_, .name = name_, .id = id_, .arguments = ""});
  return true;
}

void CallReader::send(std::string_view piece, AnswerDelta& out) {
  if (piece.empty()) return;
  if (out.calls.empty() || out.calls.back().index != index_ || !out.calls.back().name.empty()) {
    out.calls.push_back({.index = index_, .name = "", .id = "", .arguments = ""});
  }
  out.calls.back().arguments += piece;
}

// {"name": ..., "arguments": ...}, or {name: arguments}.
CallReader::Step CallReader::json_call(std::string_view& text, AnswerDelta& out) {
  while (!text.empty()) {
    const char c = text[0];
    const bool was_value = scanner_.in_member_value(), was_key = scanner_.in_key() && scanner_.depth() == 1;
    const bool in_string = scanner_.in_string();
    if (scanner_.depth() == 0 && c != '{' && !is_space(c)) return Step::kBroken;
    const JsonScanner::Status status = scanner_.push(c);
    if (status == JsonScanner::Status::kBad) return Step::kBroken;
    text.remove_prefix(1);
    const bool is_key = scanner_.in_key() && scanner_.depth() == 1;
    if (is_key || was_key) {
      if (!was_key) key_.clear();
      append_json_byte(c, in_string, key_);
    }
    if (scanner_.in_member_value()) {
      if (!member_byte(c, !was_value, in_string, out)) return Step::kBroken;
    } else if (was_value && !member_ended()) {
      return Step::kBroken;
    }
    if (status == JsonScanner::Status::kDone) {
      if (!finish_json_call(out)) return Step::kBroken;
      state_ = State::kEnd;
      return Step::kOn;
    }
  }
  return Step::kMore;
}

bool CallReader::is_name_key() const {
  return !syntax_.name_key.empty() && (key_ == syntax_.name_key || key_ == "name");
}

bool CallReader::is_arguments_key() const {
  return syntax_.name_key.empty() || key_ == syntax_.arguments_key || key_ == "arguments" || key_ == "parameters";
}

// One byte of a member's value; first of all its colon.
bool CallReader::member_byte(char c, bool is_colon, bool in_string, AnswerDelta& out) {
  if (is_colon) {
    key_ = unquoted(key_);
    value_.clear();
    live_ = false;
    const bool known = is_name_key() || is_arguments_key() || key_ == "id" || key_ == "tool_call_id" || key_ == "type";
    return known || !syntax_.bare;  // other JSON is shown as soon as that is known
  }
  if (!live_ && value_.empty()) {
    if (is_space(c)) return true;
    if (c == '{' && is_arguments_key() && !has_arguments_) {
      if (syntax_.name_key.empty()) name_ = key_;
      live_ = has_arguments_ = !name_.empty();
      if (live_ && !begin(out)) return false;
    }
  }
  std::string piece;
  append_json_byte(c, in_string, piece);
  if (!live_) {
    value_ += piece;
  } else if (scanner_.depth() > 1 || c == '}') {  // else it is white space after the value
    send(piece, out);
  }
  return true;
}

bool CallReader::member_ended() {
  if (live_) return true;
  if (is_name_key()) {
    name_ = unquoted(value_);
    return is_tool_name(name_);
  }
  if (!is_arguments_key()) return true;
  if (syntax_.name_key.empty()) name_ = key_;
  held_ = std::string(trim_right(value_));
  if (held_.starts_with('"')) held_ = unquoted(held_);  // some models write the arguments as text
  if (held_.empty() || held_ == "null") held_ = "{}";
  const auto object = parse_ordered_json(held_, {.refuse_duplicate_keys = false});
  return object.ok() && object->is_object();
}

bool CallReader::finish_json_call(AnswerDelta& out) {
  if (!begin(out)) return false;
  if (!has_arguments_) send(held_.empty() ? "{}" : held_, out);
  return true;
}

// A JSON object, as it comes.
CallReader::Step CallReader::arguments(std::string_view& text, AnswerDelta& out) {
  std::string piece;
  Step result = Step::kMore;
  while (!text.empty() && result == Step::kMore) {
    const char c = text[0];
    const bool in_string = scanner_.in_string();
    if (scanner_.depth() == 0 && c != '{') return Step::kBroken;
    const JsonScanner::Status status = scanner_.push(c);
    if (status == JsonScanner::Status::kBad || !begin(out)) {
      result = Step::kBroken;
      break;
    }
    text.remove_prefix(1);
    append_json_byte(c, in_string, piece);
    if (status == JsonScanner::Status::kDone) {
      state_ = State::kEnd;
      result = Step::kOn;
    }
  }
  send(piece, out);
  return result;
}

CallReader::Step CallReader::key_or_end(std::string_view& text, AnswerDelta& out) {
  const MatchResult key = match_literal(syntax_.key_begin, text), end = match_literal(syntax_.end, text);
  if (key.match == Match::kFull) {
    text.remove_prefix(key.bytes);
    key_.clear();
    value_.clear();
    attribute_.clear();
    state_ = State::kKey;
    return Step::kOn;
  }
  if (text.empty() || (end.match != Match::kFull && (key.match == Match::kPartial || end.match == Match::kPartial))) return Step::kMore;
  if (end.match == Match::kNo || !begin(out)) return Step::kBroken;
  text.remove_prefix(end.bytes);
  send(sent_keys_ == 0 ? "{}" : "}", out);
  return Step::kDone;
}

bool CallReader::is_string_value() const { return attribute_ == "true" || attribute_ == "string"; }

CallReader::Step CallReader::value(std::string_view& text, AnswerDelta& out) {
  const std::string_view end = trim(syntax_.value_end);
  const size_t before = value_.size();
  value_ += text;
  const size_t at = value_.find(end, before < end.size() ? 0 : before - end.size());
  if (at == std::string::npos) {
    text = {};
    return Step::kMore;
  }
  text.remove_prefix(at + end.size() - before);
  std::string_view inner(value_.data(), at);
  const std::string_view opened = syntax_.attribute_end.empty() ? syntax_.key_end : syntax_.attribute_end;
  if (opened.ends_with('\n') && inner.starts_with('\n')) inner.remove_prefix(1);
  if (syntax_.value_end.starts_with('\n') && inner.ends_with('\n')) inner.remove_suffix(1);
  const OrderedJson string_schema = {{"type", "string"}};
  const OrderedJson* property = is_string_value() ? &string_schema : property_schema(schema(), key_);
  const OrderedJson typed = typed_value(inner, property);
  if (!begin(out)) return Step::kBroken;
  send(absl::StrCat(sent_keys_++ == 0 ? "{" : ", ", dump_ordered_json(OrderedJson(key_)), ": ", dump_ordered_json(typed)), out);
  state_ = State::kKeyOrEnd;
  return Step::kOn;
}

// Everything up to the closing bracket, or the end marker, at once.
CallReader::Step CallReader::body(std::string_view& text, AnswerDelta& out) {
  bool closed = false;
  if (syntax_.shape == CallShape::kXml) {
    const std::string_view end = trim(syntax_.end);
    const size_t before = value_.size();
    value_ += text;
    const size_t at = value_.find(end, before < end.size() ? 0 : before - end.size());
    closed = at != std::string::npos;
    text.remove_prefix(closed ? at + end.size() - before : text.size());
    if (closed) value_.resize(at);
  } else {
    while (!text.empty() && !closed) {
      if (depth_ == 0 && text[0] != (syntax_.shape == CallShape::kPython ? '(' : '{')) return Step::kBroken;
      value_ += text[0];
      closed = body_closes(text[0]);
      text.remove_prefix(1);
    }
  }
  if (!closed) return Step::kMore;
  std::optional<OrderedJson> arguments;
  if (syntax_.shape == CallShape::kXml) {
    arguments = xml_arguments(value_, kXmlMark, schema());
  } else {
    const std::string_view inner = std::string_view(value_).substr(1, value_.size() - 2);
    arguments = syntax_.shape == CallShape::kPython ? python_arguments(inner) : gemma_arguments(inner);
  }
  if (!arguments || !begin(out)) return Step::kBroken;
  send(dump_ordered_json(*arguments), out);
  if (syntax_.shape == CallShape::kXml) return Step::kDone;
  state_ = State::kEnd;
  return Step::kOn;
}

// Takes in one byte of a body in brackets; whether it closes the outermost.
bool CallReader::body_closes(char c) {
  if (syntax_.shape == CallShape::kGemma) {
    if (std::string_view(value_).ends_with(kGemmaQuote)) quote_ = quote_ == 0 ? '"' : 0;
    if (quote_ != 0) return false;
  } else if (quote_ != 0) {
    if (escaped_) {
      escaped_ = false;
    } else if (c == '\\') {
      escaped_ = true;
    } else if (c == quote_) {
      quote_ = 0;
    }
    return false;
  } else if (c == '"' || c == '\'') {
    quote_ = c;
    return false;
  }
  if (c == '(' || c == '[' || c == '{') ++depth_;
  if (c == ')' || c == ']' || c == '}') --depth_;
  return depth_ == 0;
}

const OrderedJson& CallReader::schema() const {
  static const OrderedJson kNone;
  for (const ToolSpec& tool : tools_) {
    if (tool.name == name_) return tool.parameters;
  }
  return kNone;
}

CallReader::Status CallReader::finish(bool cut, AnswerDelta& out) {
  if (state_ == State::kEnd) return Status::kDone;
  if (state_ == State::kKeyOrEnd && begun_ && !cut) {
    send("}", out);
    return Status::kDone;
  }
  return begun_ ? Status::kMore : Status::kBroken;
}

}  // namespace shoal
