// Reading the components of tokenizer.json: each is an object with a "type".
#pragma once

#include <string>
#include <string_view>

#include "base/json.h"
#include "base/status.h"
#include "text/tokenizer/pcre_regex.h"

namespace shoal {

// The "type" of a component. InvalidArgument if it is not an object with one.
StatusOr<std::string> component_type(const Json& component);
// The member `key`, or null if there is none (or it is JSON null).
const Json* member(const Json& object, std::string_view key);
// The member `key`, which must be a non-empty array.
StatusOr<const Json*> array_member(const Json& object, std::string_view key);
// "pattern": {"String": s} or {"Regex": r}, as a compiled expression (a string is quoted). Empty strings are refused.
struct Pattern {
  std::string literal;  // for a String pattern
  bool is_literal = false;
  Regex regex;
};
StatusOr<Pattern> pattern_member(const Json& object);

// Nested Sequences are bounded: `depth` counts the ones around.
constexpr int kSequenceDepthMax = 8;
Status check_sequence_depth(int depth);

}  // namespace shoal
