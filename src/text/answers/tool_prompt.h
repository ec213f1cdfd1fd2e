// Tools and calls on their way into a prompt. Templates differ in what they know and in what form they want it; one
// look at what a template makes of a sample conversation tells.
#pragma once

#include <functional>
#include <map>
#include <string>

#include "base/json.h"
#include "text/answers/call_syntax.h"

namespace shoal {

struct TemplateTraits {
  bool system_role = true;         // takes a system message
  bool tools = false;              // describes the variable `tools`
  bool tool_calls = false;         // prints the calls of earlier turns, too
  bool tool_role = false;          // prints the results of calls
  bool arguments_as_text = false;  // wants a call's arguments as JSON text, not as an object
  bool null_content = false;       // wants no content beside calls, not even an empty one
  bool short_ids = false;          // refuses ids of calls that are not nine letters and digits
  friend bool operator==(const TemplateTraits&, const TemplateTraits&) = default;
};

// What a template makes of its variables (messages, tools ...); nothing where it refuses them.
using RenderTemplate = std::function<std::string(const OrderedJson& variables)>;

// `variables`: bos_token and its like. Never fails: what the template refuses to print it does not know.
TemplateTraits probe_template(const RenderTemplate& render, const std::map<std::string, std::string>& variables);

// The messages in the form that the template wants. `messages`: checked ones, contents are texts (an assistant's may be
// null), arguments of calls are objects. What the template does not know is said in words: tools in a system message,
// calls and results in contents. `tools`: an array, or null.
OrderedJson adapt_messages(const OrderedJson& messages, const OrderedJson& tools, const TemplateTraits& traits,
                           const CallSyntax& calls);

// An id that the model's templates take back: "call_" and 24 letters and digits, or nine. `random` decides.
std::string call_id(bool is_short, uint64_t random);

}  // namespace shoal
