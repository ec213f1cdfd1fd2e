// The live view of a running server, as text of its answers to GET /status.
#pragma once

#include <cstddef>
#include <string>

#include "base/json.h"

namespace shoal {

struct TopScreen {
  size_t width = 100;
  size_t height = 0;      // lines at most; 0: all there are
  bool color = false;
  std::string server;     // shown in the first line
};

// One screen, lines ended by '\n' and none wider than the screen. `before`: an earlier answer; rates are of the time between
// the two, and "-" without it.
std::string top_screen(const Json& now, const Json& before, const TopScreen& screen);

// For machines: what top_screen() shows.
Json top_json(const Json& now, const Json& before);

}  // namespace shoal
