// What becomes of fields that are not served: those that peers know and that would change the answer are refused by name,
// those that clients send by habit and that cannot change it are ignored, and what looks like a misspelling is refused with
// the name that was meant. docs/FIELDS.md is the table for people.
#pragma once

#include <span>
#include <string_view>

#include "gateway/fields.h"

namespace shoal {

struct UnservedField {
  std::string_view name;
  std::string_view harmless;  // JSON values, divided by spaces, that ask for nothing; null, "", [] and {} never do
  std::string_view advice;    // ends the sentence "'NAME' is not served; ..."
};

// For tests and documents.
std::span<const UnservedField> unserved_fields();
std::span<const std::string_view> ignored_fields();

// Both: REQUIRES that everything that is served has been read from `fields`.
void check_other_fields(Fields& fields);
// The last of the three alone, for objects within a request and for requests that generate nothing.
void check_misspelt_fields(Fields& fields);

}  // namespace shoal
