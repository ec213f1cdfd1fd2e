// shoal man [VERB]: the manual, from the tree of verbs and flags.
#include <algorithm>
#include <cctype>
#include <filesystem>
#include <memory>

#include "CLI/CLI.hpp"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "apps/cli_docs.h"
#include "apps/output_file.h"
#include "apps/terminal.h"
#include "apps/usage.h"
#include "apps/verbs.h"
#include "apps/version.h"
#include "base/nearest.h"

namespace shoal {
namespace {

constexpr char kExamples[] = "Examples:\n";
constexpr size_t kLineMax = 78;

// Text for roff: nothing in it is a request or an escape, and its hyphens can be copied.
std::string roff(const std::string& text) {
  std::string out;
  bool line_start = true;
  for (const char c : text) {
    if (line_start && (c == '.' || c == '\'')) out += "\\&";
    if (c == '\\') out += "\\e";
    else if (c == '-') out += "\\-";
    else if (c == '`' || c == '\'') out += c == '`' ? "\\(ga" : "\\(aq";
    else out += c;
    line_start = c == '\n';
  }
  return out;
}

// Paragraph text in lines of at most 78 characters, where words allow it.
std::string paragraph(const std::string& text) {
  std::string out, line;
  for (const std::string& word : std::vector<std::string>(absl::StrSplit(text, ' ', absl::SkipEmpty()))) {
    const std::string piece = roff(word);
    if (!line.empty() && line.size() + 1 + piece.size() > kLineMax) out += std::exchange(line, "") + "\n";
    line += (line.empty() ? "" : " ") + piece;
  }
  return out + line;
}

// "UINT:INT in [1 - 65535]" -> "UINT".
std::string value_name(const CLI::Option& option) {
  if (option.get_items_expected_max() == 0) return "";
  const std::string type = option.get_type_name();
  std::string name = type.substr(0, type.find(':'));
  name = name.substr(0, name.find(" in "));
  return absl::StrCat(name.empty() ? "VALUE" : name, option.get_items_expected_max() > 1 ? "..." : "");
}

std::string option_entry(const CLI::Option& option) {
  std::vector<std::string> names;
  for (const std::string& name : option.get_snames()) names.push_back("\\fB\\-" + roff(name) + "\\fR");
  for (const std::string& name : option.get_lnames()) names.push_back("\\fB\\-\\-" + roff(name) + "\\fR");
  if (names.empty()) names.push_back("\\fI" + roff(option.get_single_name()) + "\\fR");
  const std::string value = option.nonpositional() ? value_name(option) : "";
  std::string text = option.get_description() + ".";
  if (const auto choices = option_choices(option); !choices.empty()) absl::StrAppend(&text, " One of ", absl::StrJoin(choices, ", "), ".");
  if (!option.get_default_str().empty()) absl::StrAppend(&text, " Default: ", option.get_default_str(), ".");
  if (!option.get_envname().empty()) absl::StrAppend(&text, " Environment: ", option.get_envname(), ".");
  return absl::StrCat(".TP\n", absl::StrJoin(names, ", "), value.empty() ? "" : " \\fI" + value + "\\fR", "\n", paragraph(text), "\n");
}

std::string options_section(const CLI::App& app, const std::string& title) {
  std::string out;
  for (const CLI::Option* option : app.get_options()) {
    if (option->get_single_name() != "help") out += option_entry(*option);
  }
  return out.empty() ? "" : absl::StrCat(".SH ", title, "\n", out);
}

// A footer is notes, then examples.
std::string footer_sections(const std::string& footer) {
  const size_t at = std::min(footer.find(kExamples), footer.size());
  std::string out;
  if (at > 0) absl::StrAppend(&out, ".SH NOTES\n", paragraph(std::string(absl::StripAsciiWhitespace(footer.substr(0, at)))), "\n");
  if (at < footer.size()) absl::StrAppend(&out, ".SH EXAMPLES\n.nf\n", roff(footer.substr(at + sizeof kExamples - 1)), "\n.fi\n");
  return out;
}

std::string upper(std::string text) { return absl::AsciiStrToUpper(text); }

std::string synopsis(const CLI::App& verb) {
  std::string out = absl::StrCat(".SH SYNOPSIS\n\\fBshoal ", verb.get_name(), "\\fR");
  const auto subs = verb.get_subcommands([](const CLI::App*) { return true; });
  for (size_t i = 0; i < subs.size(); ++i) absl::StrAppend(&out, i == 0 ? " " : " | ", "\\fB", subs[i]->get_name(), "\\fR");
  out += " [\\fIOPTIONS\\fR]";
  for (const CLI::Option* option : verb.get_options()) {
    if (option->nonpositional()) continue;
    const std::string name = "\\fI" + roff(option->get_single_name()) + "\\fR";
    absl::StrAppend(&out, " ", option->get_required() ? name : "[" + name + "]");
  }
  return out + "\n";
}

std::string verb_page(const CLI::App& verb) {
  std::string out = absl::StrCat(".SH NAME\nshoal\\-", verb.get_name(), " \\- ", roff(verb.get_description()), "\n", synopsis(verb));
  out += options_section(verb, "OPTIONS");
  for (const CLI::App* sub : verb.get_subcommands([](const CLI::App*) { return true; })) {
    absl::StrAppend(&out, ".SH ", upper(sub->get_name()), "\n", paragraph(sub->get_description() + "."), "\n");
  }
  return out + footer_sections(verb.get_footer());
}

std::string root_page(const CLI::App& root) {
  std::string out = absl::StrCat(".SH NAME\nshoal \\- ", roff(root.get_description()), "\n.SH SYNOPSIS\n\\fBshoal\\fR \\fIVERB\\fR [\\fIOPTIONS\\fR]\n.SH VERBS\n");
  for (const CLI::App* verb : root.get_subcommands([](const CLI::App*) { return true; })) {
    absl::StrAppend(&out, ".TP\n\\fBshoal\\-", verb->get_name(), "\\fR(1)\n", paragraph(verb->get_description() + "."), "\n");
  }
  return out + footer_sections(root.get_footer());
}

}  // namespace

std::vector<std::string> option_choices(const CLI::Option& option) {
  std::vector<std::string> out;
  const std::string type = option.get_type_name();
  const size_t open = type.find('{'), close = type.find('}');
  if (open == std::string::npos || close == std::string::npos) return out;
  std::string word;
  for (const char c : type.substr(open + 1, close - open - 1) + ",") {
    if (c != ',') word += c;
    else out.push_back(std::exchange(word, ""));
  }
  return out;
}

std::string man_page(const CLI::App& root, const CLI::App* verb, const std::string& version) {
  const std::string name = verb == nullptr ? "SHOAL" : "SHOAL\\-" + upper(verb->get_name());
  return absl::StrCat(".TH ", name, " 1 \"\" \"Shoal ", version, "\" \"Shoal Manual\"\n", verb == nullptr ? root_page(root) : verb_page(*verb),
                      ".SH EXIT STATUS\n0: done. 1: it failed; the reason is on standard error. 2: the command line is wrong. 130: Ctrl-C ended a measurement or a simulation, after what was found so far.\n",
                      ".SH SEE ALSO\n", verb == nullptr ? "shoal\\-serve(1), shoal\\-config(1)" : "shoal(1)", "\n");
}

namespace {

Status write_pages(const CLI::App& root, const std::string& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) return unavailable(folder, ": cannot be made: ", error.message());
  const auto write = [&](const CLI::App* verb) {
    return write_output(absl::StrCat(folder, "/shoal", verb == nullptr ? "" : "-" + verb->get_name(), ".1"), man_page(root, verb, version_number()));
  };
  RETURN_IF_ERROR(write(nullptr));
  for (const CLI::App* verb : root.get_subcommands([](const CLI::App*) { return true; })) RETURN_IF_ERROR(write(verb));
  return OkStatus();
}

}  // namespace

RunVerb add_man(CLI::App& app) {
  CLI::App* self = app.add_subcommand("man", "Print the manual, for man(1)");
  auto verb = std::make_shared<std::string>();
  auto folder = std::make_shared<std::string>();
  self->add_option("verb", *verb, "Page of this verb; without it that of the whole");
  self->add_option("--dir", *folder, "Write all pages into this folder instead");
  self->footer("Examples:\n  shoal man serve | man -l -\n  shoal man --dir /usr/local/share/man/man1");
  return [&app, verb, folder] {
    if (!folder->empty()) return exit_code(write_pages(app, *folder));
    const auto named = app.get_subcommands([&](const CLI::App* one) { return one->get_name() == *verb; });
    const CLI::App* of = named.empty() ? nullptr : named.front();
    if (!verb->empty() && of == nullptr) {
      fail("there is no verb '" + *verb + "'" + did_you_mean(*verb, verbs_of(app)) + "; `shoal --help` lists them");
      return kExitUsage;
    }
    show_text(man_page(app, of, version_number()));
    return kExitOk;
  };
}

}  // namespace shoal
