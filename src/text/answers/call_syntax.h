// How families of models write tool calls and reasoning: one row per family, read by the parser of answers and by the
// grammar that constrains them. docs/TOOLS.md has the families as a table; a test compares the two.
#pragma once

#include <array>
#include <span>
#include <string>
#include <string_view>

#include "base/status.h"

namespace shoal {

// What stands between `begin` and `end` of a call.
enum class CallShape : uint8_t {
  kJsonCall,    // a JSON object that holds the name and the arguments
  kNamedJson,   // the name, then the arguments as a JSON object
  kTagged,      // the name, then one key and one value per argument
  kXml,         // the name, then elements, nested like the arguments
  kPython,      // name(key=literal, ...)
  kGemma,       // name{key:value, ...} with strings between <|"|>
  kHarmony,     // messages with a channel and a recipient
};

// Literals are exactly what the family's template prints. Where one has white space, or '>' before '<', a reader
// accepts any white space or none, for models are not always exact.
struct CallSyntax {
  std::string_view name;  // as vLLM's --tool-call-parser
  CallShape shape = CallShape::kJsonCall;
  std::array<std::string_view, 2> signs{};  // a template that has both belongs to the family

  std::string_view section_begin, section_end;  // around all calls; may be empty
  std::string_view begin, end;                  // around each; may be empty
  std::string_view between;                     // two calls
  std::string_view list_begin, list_end;        // around all calls, inside the section; empty: no list
  std::string_view other_begin;                 // a spelling of `begin` that is read, but never asked for
  bool bare = false;                            // without marker: only what an answer starts with is a call

  // kJsonCall. An empty name_key: the one key is the name, its value the arguments.
  std::string_view name_key, arguments_key;

  // kNamedJson, kTagged, kXml: what follows the name. With index_end a number follows, and then that.
  std::string_view name_end, index_end;
  bool id_from_index = false;  // the call's id is "functions.<name>:<number>", as the template prints it back

  // kTagged. With attribute_end the key is followed by a word that says if the value is a string, and then that.
  std::string_view key_begin, key_end, attribute_end, value_end;

  bool short_ids = false;  // ids of nine letters and digits, others are refused by the templates
};

struct ReasoningSyntax {
  std::string_view name;   // as vLLM's --reasoning-parser
  std::string_view sign;   // a template that has it belongs to the family
  std::string_view begin, end;
  std::array<std::string_view, 4> wrappers{};  // around the answer's content: dropped
};

// The tables, in the order in which signs are looked for.
std::span<const CallSyntax> call_syntaxes();
std::span<const ReasoningSyntax> reasoning_syntaxes();

// What one model writes. Pointers into the tables; null: it has none.
struct AnswerFormat {
  const CallSyntax* calls = nullptr;
  const ReasoningSyntax* reasoning = nullptr;
  bool always_reasons = false;  // named by hand: an answer starts with reasoning even if the prompt does not open it

  // Whether `token`, a special token's text, has a meaning in the format and so must reach the parser.
  bool has_marker(std::string_view token) const;
};

// The families by the signs in a chat template.
AnswerFormat detect_format(std::string_view chat_template);
// The same with families named by hand ("auto": by signs, "none": none). InvalidArgument names the ones there are.
StatusOr<AnswerFormat> choose_format(std::string_view chat_template, const std::string& calls, const std::string& reasoning);

// What is written where a template knows nothing of tools.
const CallSyntax& generic_calls();

}  // namespace shoal
