// Arguments that are not written as JSON, as JSON: text between tags, Python literals, Gemma's own notation, XML.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/json.h"

namespace shoal {

// The schema of one property of an object's schema; null where there is none.
const OrderedJson* property_schema(const OrderedJson& schema, std::string_view key);

// The text of a value whose type only the schema tells, as JSON: "5" is a string where the schema wants strings, a
// number where it allows numbers. What is not JSON of an allowed type is a string.
OrderedJson typed_value(std::string_view text, const OrderedJson* schema);

// `text` is all between the outer brackets. nullopt for what does not parse, and for nesting deeper than 64.
// city="Bern", days=[1, 2]          (Python's keyword arguments; None, True and False as well as JSON's words)
std::optional<OrderedJson> python_arguments(std::string_view text);
// city:<|"|>Bern<|"|>,days:[1,2]
std::optional<OrderedJson> gemma_arguments(std::string_view text);
// <mark><city>Bern<mark></city><mark><days><mark><item>1<mark></item>...<mark></days>; typed by the schema.
std::optional<OrderedJson> xml_arguments(std::string_view text, std::string_view mark, const OrderedJson& schema);

}  // namespace shoal
