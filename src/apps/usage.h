// What is wrong with a command line, for who typed it.
#pragma once

#include <string>
#include <vector>

namespace CLI {
class App;
class ParseError;
}  // namespace CLI

namespace shoal {

// Names and aliases of the verbs of this one.
std::vector<std::string> verbs_of(const CLI::App& app);

// The verb that the words led to, as they were typed: "shoal config check".
std::string verb_typed(const CLI::App& app);

// The error of app.parse() as one line: an unknown verb or flag with the nearest that there is. REQUIRES: `error` is of this parse.
std::string usage_error(const CLI::App& app, const CLI::ParseError& error);

}  // namespace shoal
