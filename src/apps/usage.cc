#include "apps/usage.h"

#include <algorithm>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "base/nearest.h"

namespace shoal {
namespace {

// The innermost verb that was recognised; the program itself if none was.
const CLI::App& innermost(const CLI::App& app) {
  const CLI::App* at = &app;
  while (!at->get_subcommands().empty()) at = at->get_subcommands().front();
  return *at;
}

std::vector<std::string> flags_of(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  }
  return names;
}

std::string unexpected(const CLI::App& at, const std::string& word) {
  if (word.size() > 1 && word[0] == '-') {
    const std::string flag = word.substr(0, word.find('='));
    return absl::StrCat("there is no flag ", flag, did_you_mean(flag, flags_of(at)));
  }
  const std::vector<std::string> verbs = verbs_of(at);
  if (!verbs.empty()) return absl::StrCat("there is no verb '", word, "'", did_you_mean(word, verbs));
  return absl::StrCat("'", word, "' was not expected; what has several words goes in quotes");
}

}  // namespace

std::vector<std::string> verbs_of(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* verb : app.get_subcommands([](const CLI::App*) { return true; })) {
    names.push_back(verb->get_name());
    for (const std::string& alias : verb->get_aliases()) names.push_back(alias);
  }
  return names;
}

std::string verb_typed(const CLI::App& app) {
  std::string typed = app.get_name();
  for (const CLI::App* at = &app; !at->get_subcommands().empty();) {
    at = at->get_subcommands().front();
    absl::StrAppend(&typed, " ", at->get_name());
  }
  return typed;
}

std::string usage_error(const CLI::App& app, const CLI::ParseError& error) {
  const CLI::App& at = innermost(app);
  const std::vector<std::string> left = at.remaining();
  const bool unknown = error.get_exit_code() == static_cast<int>(CLI::ExitCodes::ExtrasError) || !verbs_of(at).empty();
  if (unknown && !left.empty()) return unexpected(at, left.front());
  return error.what();
}

}  // namespace shoal
