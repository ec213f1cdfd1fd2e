// A model's answer, as it is generated, into what clients are told of it: content, reasoning and tool calls. However
// the text is cut into pieces, the deltas together say the same.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "nlohmann/json.hpp"
#include "text/answers/call_syntax.h"

namespace shoal {

// A function that a client offers.
struct ToolSpec {
  std::string name;        // [a-zA-Z0-9_.-]{1,128}
  OrderedJson parameters;  // a JSON schema, or null for anything
  bool strict = false;
};
using ToolList = std::vector<ToolSpec>;

struct CallDelta {
  uint32_t index = 0;     // of the call in the answer
  std::string name;       // not empty: the call begins, and has no arguments yet
  std::string id;         // of a call that begins, if the model's format gives it one
  std::string arguments;  // the next piece of the JSON text; the pieces of a finished call are one JSON object
};

struct AnswerDelta {
  std::string content;
  std::string reasoning;
  std::vector<CallDelta> calls;  // in order

  bool empty() const { return content.empty() && reasoning.empty() && calls.empty(); }
};

struct AnswerParserOptions {
  AnswerFormat format;
  bool reasoning = true;                  // false: reasoning stays in the content, with its markers
  bool starts_reasoning = false;          // the prompt has opened it
  std::shared_ptr<const ToolList> tools;  // null: what looks like a call is content

  // Whether the answer begins with reasoning, without a marker.
  bool begins_in_reasoning() const { return format.reasoning != nullptr && (starts_reasoning || format.always_reasons); }
};

// What is not a call after all is content, in full: nothing a model writes is an error. A call of which clients already
// know the name stays with the arguments that were right; the rest of it is dropped.
class AnswerParser {
 public:
  virtual ~AnswerParser() = default;

  // The next text, with the special tokens that AnswerFormat::has_marker() names.
  virtual void push(std::string_view text, AnswerDelta& out) = 0;
  // The end. `cut`: the model would have gone on (a length limit, a stop string), so that half a call is no content.
  virtual void finish(bool cut, AnswerDelta& out) = 0;

  virtual bool in_reasoning() const = 0;
  virtual bool in_call() const = 0;      // within one, also after finish(): it is not complete
  virtual uint32_t calls() const = 0;    // that have begun
};

// Null where there is nothing to look for: all text is content.
std::unique_ptr<AnswerParser> make_answer_parser(const AnswerParserOptions& options);

// For the parsers of this folder.
enum class Match { kNo, kPartial, kFull };
struct MatchResult {
  Match match = Match::kNo;
  size_t bytes = 0;  // of the text, for kFull
};
// Whether `text` begins with `literal`, or may do so once more text has come. White space is lenient, as CallSyntax says.
MatchResult match_literal(std::string_view literal, std::string_view text);

std::unique_ptr<AnswerParser> make_harmony_parser(const AnswerParserOptions& options);

}  // namespace shoal
