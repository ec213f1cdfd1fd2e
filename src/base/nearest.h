// Which of the names there are was meant: for errors about a name that is unknown.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace shoal {

// Letters to add, leave out or replace, and neighbours to swap, that make one of the other. Takes a * b steps.
size_t edit_distance(std::string_view a, std::string_view b);

// The name that takes the fewest edits (letters to add, leave out or replace, neighbours to swap; case does not count). A
// name of which `given` is a part of three letters or more counts as near. nullopt if all are too far to have been meant.
// The view is into `names`.
std::optional<std::string_view> nearest_name(std::string_view given, std::span<const std::string_view> names);

// The end of an error's sentence: "; did you mean 'tiny-llama'?", or "" if nothing is near.
std::string did_you_mean(std::string_view given, std::span<const std::string_view> names);
std::string did_you_mean(std::string_view given, std::span<const std::string> names);

}  // namespace shoal
