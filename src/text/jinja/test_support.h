// Templates rendered in one call, for the tests of this folder, and variables with a bit of everything.
#pragma once

#include <string>
#include <vector>

#include "text/jinja/chat_template.h"

namespace shoal {

constexpr const char* kReferenceVariables = R"x({
  "messages": [{"role": "system", "content": "Be <b>terse</b>."},
               {"role": "user", "content": "Grüße, \"you\" & 'me' 🙂\n  two\n"},
               {"role": "assistant", "content": null, "tool_calls": [{"function": {"name": "f", "arguments": {"b": 1, "a": [1.5, true, null]}}}]}],
  "tools": [{"name": "z", "n": 3, "on": true}, {"name": "A", "n": 1, "on": false}, {"name": "m", "n": 2, "on": true}],
  "bos_token": "<s>", "s": "Hello World", "n": 7, "f": 2.5, "neg": -3, "t": true, "none": null, "empty": "", "items": [3, 1, 2],
  "d": {"b": 2, "a": 1, "c": {"x": [1, {"y": "z"}]}}, "u": "ÀÉß ﬁ İ ǆ", "ws": "  a b\tc \n", "big": 12345678901,
  "many": [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29],
  "nested": [[1, [2, 3]], [4]], "words": "one two three two one", "html": "<a href=\"x\">&</a>"})x";

inline StatusOr<std::vector<TextPart>> render_parts(const std::string& source, const std::string& variables, const RenderOptions& options = {}) {
  auto parsed = ChatTemplate::parse(source);
  if (!parsed.ok()) return parsed.status();
  auto json = parse_ordered_json(variables);
  if (!json.ok()) return json.status();
  return (*parsed)->render_ordered(*json, options);
}

// The text, or "error: ..." so that a table of cases can hold refusals.
inline std::string render(const std::string& source, const std::string& variables = "{}") {
  const auto parts = render_parts(source, variables);
  return parts.ok() ? join(*parts) : "error: " + std::string(parts.status().message());
}

}  // namespace shoal
