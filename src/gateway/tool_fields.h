// The tools of a chat: what a client offers, and what it asks of the model.
#pragma once

#include <memory>
#include <string>

#include "gateway/fields.h"
#include "text/answers/answer_parser.h"

namespace shoal {

struct RequestLimits;

struct ToolChoice {
  enum class Kind { kAuto, kNone, kRequired, kNamed } kind = Kind::kAuto;
  std::string name;  // kNamed
};

struct ToolFields {
  std::shared_ptr<const OrderedJson> tools;  // as the client wrote them; null: none
  std::shared_ptr<const ToolList> specs;     // the same, checked; null: none
  ToolChoice choice;
  bool parallel = true;                      // more than one call in an answer

  // What the model gets to see: none if it may not call any.
  bool offered() const { return specs != nullptr && choice.kind != ToolChoice::Kind::kNone; }
};

// `tools`, `tool_choice` and `parallel_tool_calls`; `functions` and `function_call` are refused by name.
void read_tools(Fields& fields, const RequestLimits& limits, ToolFields& out);

}  // namespace shoal
