// Man pages and shell completion, made from the same tree of verbs and flags that parses the command line and prints
// --help: what one of them knows, all of them know.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace shoal {

// A page for man(1): of `verb`, or of the whole program if it is null.
std::string man_page(const CLI::App& root, const CLI::App* verb, const std::string& version);

// A script for bash, zsh or fish.
std::string bash_completion(const CLI::App& root);
std::string zsh_completion(const CLI::App& root);
std::string fish_completion(const CLI::App& root);

// The words that an option allows, if they are a fixed list.
std::vector<std::string> option_choices(const CLI::Option& option);

}  // namespace shoal
