// Templates rendered in one call, for the tests of this folder.
#pragma once

#include <string>
#include <vector>

#include "text/jinja/chat_template.h"

namespace shoal {

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
