// Reads one tool call from the text of an answer, as it comes.
#pragma once

#include <string>
#include <string_view>

#include "text/answers/answer_parser.h"
#include "text/answers/json_scanner.h"

namespace shoal {

bool is_tool_name(std::string_view name);  // [a-zA-Z0-9_.-]{1,128}

class CallReader {
 public:
  enum class Status { kMore, kDone, kBroken };

  // The text after CallSyntax::begin is what read() expects first. `syntax` and `tools` outlive the reader; `index` is
  // the call's place in the answer.
  CallReader(const CallSyntax& syntax, const ToolList& tools, uint32_t index);

  // Takes from the front of `text` what belongs to the call, and only that.
  Status read(std::string_view& text, AnswerDelta& out);
  // The end of the answer: kDone if only markers are missing. `cut` as of AnswerParser::finish().
  Status finish(bool cut, AnswerDelta& out);

  bool begun() const { return begun_; }  // clients know of the call

 private:
  enum class State { kJsonCall, kName, kNameEnd, kCallId, kIndex, kIndexEnd, kArguments, kKeyOrEnd, kKey, kAttribute, kValue, kBody, kEnd };
  enum class Step { kOn, kMore, kDone, kBroken };

  Step step(std::string_view& text, AnswerDelta& out);
  Step literal(std::string_view wanted, std::string_view& text, State next);
  Step name(std::string_view& text);
  Step run(std::string& out, State next, std::string_view& text);
  Step until(std::string_view end, std::string& out, State next, std::string_view& text);
  Step name_ended();
  bool may_skip_space() const;
  Step json_call(std::string_view& text, AnswerDelta& out);
  bool is_name_key() const;
  bool is_arguments_key() const;
  bool member_byte(char c, bool is_colon, bool in_string, AnswerDelta& out);
  bool member_ended();
  bool finish_json_call(AnswerDelta& out);
  Step arguments(std::string_view& text, AnswerDelta& out);
  Step key_or_end(std::string_view& text, AnswerDelta& out);
  Step value(std::string_view& text, AnswerDelta& out);
  Step body(std::string_view& text, AnswerDelta& out);
  bool body_closes(char c);
  bool begin(AnswerDelta& out);
  void send(std::string_view piece, AnswerDelta& out);
  const OrderedJson& schema() const;
  bool is_string_value() const;

  const CallSyntax& syntax_;
  const ToolList& tools_;
  const uint32_t index_;
  State state_;
  bool begun_ = false;
  std::string name_, id_, number_;

  JsonScanner scanner_;
  std::string key_, value_;   // of a member of the call's object, or of a tagged argument
  bool live_ = false;         // the member's value goes to the client as it comes
  bool has_arguments_ = false;
  std::string held_;          // arguments that came before the name
  uint32_t sent_keys_ = 0;

  std::string attribute_;
  char quote_ = 0;            // of kBody: the string we are in
  bool escaped_ = false;
  uint32_t depth_ = 0;
};

}  // namespace shoal
