// shoal completion bash|zsh|fish: scripts for the shells, from the tree of verbs and flags.
#include <functional>
#include <memory>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "apps/cli_docs.h"
#include "apps/terminal.h"
#include "apps/verbs.h"

namespace shoal {
namespace {

std::vector<const CLI::App*> verbs_of(const CLI::App& app) { return app.get_subcommands([](const CLI::App*) { return true; }); }

std::vector<std::string> flags_of(const CLI::App& verb) {
  std::vector<std::string> out;
  for (const CLI::Option* option : verb.get_options()) {
    for (const std::string& name : option->get_lnames()) out.push_back("--" + name);
  }
  return out;
}

// What the first argument of a verb is completed with.
enum class Argument { kFiles, kLocalModels, kServedModels, kWords };

Argument argument_of(const CLI::App& verb) {
  const std::string& name = verb.get_name();
  if (name == "load" || name == "unload" || name == "stop") return Argument::kServedModels;
  if (name == "run" || name == "chat" || name == "tokenize" || name == "show") return Argument::kLocalModels;
  return name == "config" || name == "completion" || name == "man" ? Argument::kWords : Argument::kFiles;
}

std::vector<std::string> argument_words(const CLI::App& root, const CLI::App& verb) {
  std::vector<std::string> out;
  for (const CLI::App* sub : verbs_of(verb.get_name() == "man" ? root : verb)) out.push_back(sub->get_name());
  if (verb.get_name() == "completion") out = {"bash", "zsh", "fish"};
  return out;
}

// "case" lines "VERB FLAG" -> choices, for the shells that share that syntax.
std::string choice_cases(const CLI::App& root, const std::function<std::string(const std::string&)>& complete) {
  std::string out;
  for (const CLI::App* verb : verbs_of(root)) {
    for (const CLI::Option* option : verb->get_options()) {
      const auto choices = option_choices(*option);
      if (choices.empty()) continue;
      for (const std::string& name : option->get_lnames()) {
        absl::StrAppend(&out, "    '", verb->get_name(), " --", name, "') ", complete(absl::StrJoin(choices, " ")), "; return ;;\n");
      }
    }
  }
  return out;
}

std::string argument_cases(const CLI::App& root, const std::string& served, const std::string& local, const std::function<std::string(const std::string&)>& complete) {
  std::string out;
  for (const CLI::App* verb : verbs_of(root)) {
    const Argument kind = argument_of(*verb);
    if (kind == Argument::kFiles) continue;
    absl::StrAppend(&out, "    ", verb->get_name(), ") ",
                    kind == Argument::kServedModels ? served : kind == Argument::kLocalModels ? local : complete(absl::StrJoin(argument_words(root, *verb), " ")), " ;;\n");
  }
  return out;
}

std::string one_quoted(const std::string& text) { return "'" + absl::StrReplaceAll(text, {{"'", "'\\''"}}) + "'"; }

}  // namespace

std::string bash_completion(const CLI::App& root) {
  const auto words = [](const std::string& list) { return absl::StrCat("COMPREPLY=($(compgen -W \"", list, "\" -- \"$cur\"))"); };
  std::vector<std::string> verbs;
  std::string flags;
  for (const CLI::App* verb : verbs_of(root)) {
    verbs.push_back(verb->get_name());
    absl::StrAppend(&flags, "      ", verb->get_name(), ") ", words(absl::StrJoin(flags_of(*verb), " ")), " ;;\n");
  }
  return absl::StrCat(
      "# bash completion of shoal, made by `shoal completion bash`\n_shoal() {\n"
      "  local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} verb=${COMP_WORDS[1]}\n"
      "  COMPREPLY=()\n"
      "  if [ \"$COMP_CWORD\" -eq 1 ]; then ", words(absl::StrJoin(verbs, " ") + " --help --version"), "; return; fi\n"
      "  case \"$verb $prev\" in\n", choice_cases(root, words), "  esac\n"
      "  if [[ $cur == -* ]]; then\n    case $verb in\n", flags, "    esac\n    return\n  fi\n"
      "  case $verb in\n",
      argument_cases(root, words("$(\"${COMP_WORDS[0]}\" ps --quiet 2>/dev/null)"), words("$(\"${COMP_WORDS[0]}\" list --quiet 2>/dev/null)"), words),
      "  esac\n}\ncomplete -o default -F _shoal shoal\n");
}

std::string zsh_completion(const CLI::App& root) {
  const auto described = [](const std::string& name, const std::string& help) { return one_quoted(absl::StrReplaceAll(name, {{":", "\\:"}}) + ":" + help); };
  const auto words = [](const std::string& list) { return "compadd -- " + list; };
  std::string verbs, flags;
  for (const CLI::App* verb : verbs_of(root)) {
    absl::StrAppend(&verbs, "    ", described(verb->get_name(), verb->get_description()), "\n");
    absl::StrAppend(&flags, "      ", verb->get_name(), ") items=(");
    for (const CLI::Option* option : verb->get_options()) {
      for (const std::string& name : option->get_lnames()) absl::StrAppend(&flags, "\n        ", described("--" + name, option->get_description()));
    }
    flags += ") ;;\n";
  }
  return absl::StrCat(
      "#compdef shoal\n# zsh completion of shoal, made by `shoal completion zsh`\n_shoal() {\n  local -a items\n  local verb=$words[2] prev=$words[CURRENT-1]\n"
      "  if (( CURRENT == 2 )); then\n    items=(\n", verbs, "    )\n    _describe verb items\n    return\n  fi\n"
      "  case \"$verb $prev\" in\n", choice_cases(root, words), "  esac\n"
      "  if [[ $PREFIX == -* ]]; then\n    case $verb in\n", flags, "    esac\n    _describe flag items\n    return\n  fi\n"
      "  case $verb in\n",
      argument_cases(root, words("${(f)\"$($words[1] ps --quiet 2>/dev/null)\"}"), words("${(f)\"$($words[1] list --quiet 2>/dev/null)\"}"), words),
      "  esac\n  _files\n}\nif [[ $funcstack[1] == _shoal ]]; then _shoal \"$@\"; else compdef _shoal shoal; fi\n");
}

std::string fish_completion(const CLI::App& root) {
  std::string out = "# fish completion of shoal, made by `shoal completion fish`\n";
  for (const CLI::App* verb : verbs_of(root)) {
    absl::StrAppend(&out, "complete -c shoal -n __fish_use_subcommand -f -a ", verb->get_name(), " -d ", one_quoted(verb->get_description()), "\n");
    const std::string seen = "complete -c shoal -n '__fish_seen_subcommand_from " + verb->get_name() + "'";
    for (const CLI::Option* option : verb->get_options()) {
      const auto choices = option_choices(*option);
      for (const std::string& name : option->get_lnames()) {
        absl::StrAppend(&out, seen, " -l ", name, option->get_items_expected_max() > 0 ? " -r" : "",
                        choices.empty() ? "" : " -f -a " + one_quoted(absl::StrJoin(choices, " ")), " -d ", one_quoted(option->get_description()), "\n");
      }
    }
    switch (argument_of(*verb)) {
      case Argument::kFiles: break;
      case Argument::kServedModels: absl::StrAppend(&out, seen, " -f -a '(shoal ps --quiet 2>/dev/null)'\n"); break;
      case Argument::kLocalModels: absl::StrAppend(&out, seen, " -a '(shoal list --quiet 2>/dev/null)'\n"); break;
      case Argument::kWords: absl::StrAppend(&out, seen, " -f -a ", one_quoted(absl::StrJoin(argument_words(root, *verb), " ")), "\n"); break;
    }
  }
  return out;
}

RunVerb add_completion(CLI::App& app) {
  CLI::App* verb = app.add_subcommand("completion", "Print a completion script for a shell");
  auto shell = std::make_shared<std::string>();
  verb->add_option("shell", *shell, "bash, zsh or fish")->required()->check(CLI::IsMember({"bash", "zsh", "fish"}));
  verb->footer("Examples:\n  source <(shoal completion bash)\n  shoal completion zsh > \"${fpath[1]}/_shoal\"\n"
               "  shoal completion fish > ~/.config/fish/completions/shoal.fish");
  return [&app, shell] {
    show_text(*shell == "bash" ? bash_completion(app) : *shell == "zsh" ? zsh_completion(app) : fish_completion(app));
    return kExitOk;
  };
}

}  // namespace shoal
