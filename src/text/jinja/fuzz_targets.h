// What the template fuzzer runs, shared with a unit test that runs it over every file of tests/corpus.
#pragma once

#include <string>
#include <string_view>

#include "base/check.h"
#include "nlohmann/json.hpp"
#include "text/jinja/chat_template.h"
#include "text/tokenizer/unicode.h"

namespace shoal::fuzz {

// A template, a NUL, and its variables as JSON: parses and renders within small budgets, or is refused.
inline void jinja(std::string_view input) {
  const size_t nul = input.find('\0');
  const auto parsed = ChatTemplate::parse(input.substr(0, nul));
  if (!parsed.ok()) return;
  const auto variables = parse_ordered_json(nul == std::string_view::npos ? std::string_view("{}") : input.substr(nul + 1));
  RenderOptions options;
  options.limits = {.steps_max = 20'000, .depth_max = 20, .output_bytes_max = 1 << 16};
  const OrderedJson none = OrderedJson::object();
  const auto parts = (*parsed)->render_ordered(variables.ok() && variables->is_object() ? *variables : none, options);
  if (!parts.ok()) return;
  const std::string text = join(*parts);
  CHECK(text.size() <= options.limits.output_bytes_max && unicode::is_valid(text));
}

}  // namespace shoal::fuzz
