// What the request parsers of several interfaces share: contents of messages in parts, tools, and the conversation that is
// handed to a chat template.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "gateway/fields.h"
#include "gateway/openai_request.h"

namespace shoal {

// A text, or a list of parts of the types `kinds`, whose "text" is appended line by line. Other parts are refused by name.
// `where` names the value in errors.
void read_text_parts(Fields& fields, const OrderedJson& value, const std::string& where, std::span<const std::string_view> kinds,
                     std::string& out);

// A function that a client offers, before it is in the form of OpenAI's chats.
struct OfferedTool {
  std::string where;   // its place in the request, for errors
  std::string name;
  std::string description;
  OrderedJson parameters;  // null: anything
  bool strict = false;
};

// Checks the tools and brings them into ToolFields. REQUIRES: `out.choice` and `out.parallel` are set by the caller, who refuses a
// choice that is none of `tools` with check_choice().
void take_tools(Fields& fields, const std::vector<OfferedTool>& tools, const RequestLimits& limits, ToolFields& out);
void check_choice(Fields& fields, std::string_view param, const ToolFields& tools);

// The arguments of a call as an object, of JSON text or of an object. False, and a fault in `fields`, if they are neither.
bool read_call_arguments(Fields& fields, std::string_view key, OrderedJson& out);

// A conversation as it grows, in the form of ChatPrompt::messages: what an assistant thought, said and called in a row is one message.
class Conversation {
 public:
  // `messages`: the beginning, in the same form.
  explicit Conversation(OrderedJson messages = OrderedJson::array()) : messages_(std::move(messages)) {}

  void say(std::string_view role, std::string text);  // a message of its own, but for the assistant's
  void think(std::string text);
  void call(std::string id, std::string name, OrderedJson arguments);
  void result(std::string call_id, std::string text);
  void end_turn() { open_ = false; }                  // the next that the assistant says is a message of its own
  const OrderedJson& messages() const { return messages_; }

  // Several messages of the system at the beginning become one: most templates take one only.
  OrderedJson finish();

 private:
  OrderedJson& assistant();

  OrderedJson messages_;
  bool open_ = false;  // the last message is the assistant's, and may grow
};

// Which variables of a chat template switch reasoning on and off, whatever a model calls them.
void switch_reasoning(bool on, OrderedJson& variables);

}  // namespace shoal
