// JSON Schema -> GBNF rules. What the rules match is valid under the schema; of what is valid they match a canonical
// part:
//   - properties come in the order in which the schema declares them; an object that declares properties and does not
//     say additionalProperties gets no others;
//   - between parts at most one space, or one line break with an indentation, is allowed; none inside numbers and
//     strings that a length, pattern or format rules;
//   - integers have up to 16 digits and no point; numbers up to 16 before and after it and an exponent of up to 2; between
//     bounds numbers have up to 15 before it, up to 10 after it (more if a bound has more), and no exponent;
//   - a tuple that does not say minItems has all its items; one that does not say what follows them ends there;
//   - beside declared properties, names of additional ones hold no escapes; escapes never spell half a surrogate pair;
//   - a format matches without its rare forms (schema_scalars.cc has each as an expression).
//
// Supported: type (also lists), nullable, enum, const, properties, required, additionalProperties, patternProperties
// (a single one, alone), minProperties and maxProperties of plain maps, items, prefixItems, additionalItems, minItems,
// maxItems, minLength, maxLength, pattern, format, minimum, maximum, exclusiveMinimum, exclusiveMaximum, anyOf, oneOf
// (of alternatives that cannot overlap), allOf (merged), $ref within the schema, recursion. Annotations and words that
// no draft defines are ignored, as JSON Schema has it. Every other keyword that restricts is refused by name.
#pragma once

#include <string>
#include <string_view>

#include "base/json.h"
#include "base/status.h"

namespace shoal {
class GbnfBuilder;
}

namespace shoal::grammar {

// As GbnfBuilder::add_schema().
StatusOr<std::string> add_json_schema(GbnfBuilder& builder, std::string_view rule_name, const OrderedJson& schema);

}  // namespace shoal::grammar
