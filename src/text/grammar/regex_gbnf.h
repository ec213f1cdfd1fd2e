// Regular expressions (the part of ECMAScript's syntax that is regular) as bodies of GBNF rules.
#pragma once

#include <string>
#include <string_view>

#include "base/status.h"

namespace shoal::grammar {

enum class RegexUse {
  kWholeText,   // matches a text from its first to its last character; anchors at the ends change nothing
  kJsonString,  // matches inside a JSON string, between its quotes, escaped as JSON does; unanchored ends are open,
                // as the keyword "pattern" wants it
};

// Character classes, escapes (\d \w \s \t \xHH \uHHHH \u{H}), groups, alternation, greedy and lazy quantifiers, anchors
// at the ends. \d, \w, \s, \D and \W match what every dialect agrees on: ASCII characters. InvalidArgument with the
// offset and cause for what is not well-formed or not regular: look-around, back-references, word boundaries, anchors in the middle, Unicode properties.
StatusOr<std::string> regex_to_gbnf(std::string_view pattern, RegexUse use);

}  // namespace shoal::grammar
