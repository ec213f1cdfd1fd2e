// Tokens -> syntax tree.
#pragma once

#include <string_view>

#include "text/jinja/ast.h"

namespace shoal::jinja {

// Throws Fault: InvalidArgument with the line of what does not parse. Depth and size are bounded, so no source
// exhausts the stack, neither here nor later in a walk over the tree.
Body parse(std::string_view source);

}  // namespace shoal::jinja
