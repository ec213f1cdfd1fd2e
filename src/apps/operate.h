// What the operator's verbs show, as text of the server's answers.
#pragma once

#include <cstddef>
#include <string>

#include "base/json.h"

namespace shoal {

// The table of `ps`: Ollama's columns, then state, requests and last use. `models` is GET /models, `ollama` GET /api/ps.
// Without `all`, models that are neither loaded nor on their way are left out; so are columns that do not fit `width` (0: no limit).
std::string ps_table(const Json& models, const Json& ollama, bool all, size_t width = 0);

// "4 minutes ago", "12 seconds ago".
std::string ago(double seconds);

}  // namespace shoal
