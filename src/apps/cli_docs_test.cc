#include "apps/cli_docs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>

#include "CLI/CLI.hpp"
#include "absl/strings/str_split.h"
#include "apps/settings.h"

namespace shoal {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

// A program with what a page or script could stumble over.
class CliDocs : public testing::Test {
 protected:
  CliDocs() {
    CLI::App* serve = app_.add_subcommand("serve", "Serve models");
    serve->add_option("path", path_, "Folder of models")->required();
    serve->add_option("-p,--port", port_, "Port to listen on")->capture_default_str();
    serve->add_option("--kind", kind_, "What it is")->check(CLI::IsMember({"one", "two"}));
    serve->add_option("--quote", quote_, "Don't say 'it': a \\ and a `tick` - that's all");
    serve->add_flag("--loud", loud_, "Say more");
    serve->footer("Stops at Ctrl-C.\nExamples:\n  shoal serve models\n  shoal serve 'a b'");
    app_.add_subcommand("load", "Load a model")->add_option("model", path_, "Name");
    app_.add_subcommand("run", "Ask a model")->add_option("model", path_, "Name");
    app_.add_subcommand("config", "Settings")->add_subcommand("check", "Look for faults");
    for (CLI::App* verb : app_.get_subcommands([](const CLI::App*) { return true; })) name_environment(*verb);
  }
  const CLI::App* verb(const char* name) const { return app_.get_subcommand(name); }

  CLI::App app_{"Many models on few devices", "shoal"};
  std::string path_, kind_, quote_;
  int port_ = 8080;
  bool loud_ = false;
};

TEST_F(CliDocs, EveryScriptKnowsEveryVerbAndFlag) {
  for (const std::string& script : {bash_completion(app_), zsh_completion(app_), fish_completion(app_)}) {
    for (const char* word : {"serve", "load", "run", "config", "port", "kind", "quote", "loud"}) EXPECT_THAT(script, HasSubstr(word));
    EXPECT_THAT(script, HasSubstr("one two")) << "the words that --kind allows";
  }
}

TEST_F(CliDocs, ServedModelsAndThoseOfThisMachineAreAskedFor) {
  for (const std::string& script : {bash_completion(app_), zsh_completion(app_), fish_completion(app_)}) {
    EXPECT_THAT(script, HasSubstr("ps --quiet"));    // load
    EXPECT_THAT(script, HasSubstr("list --quiet"));  // run
  }
}

TEST_F(CliDocs, QuotesOfDescriptionsDoNotEndTheWordsOfAScript) {
  EXPECT_THAT(zsh_completion(app_), HasSubstr(R"(Don'\''t say '\''it'\'':)"));
  EXPECT_THAT(fish_completion(app_), HasSubstr(R"(that'\''s all')"));
}

// Shells read the scripts without running them.
TEST_F(CliDocs, BashTakesItsScript) {
  if (std::system("bash -c true 2>/dev/null") != 0) GTEST_SKIP() << "no bash";
  const std::string path = testing::TempDir() + "shoal_completion_test.bash";
  std::ofstream(path) << bash_completion(app_);
  EXPECT_EQ(std::system(("bash -n " + path).c_str()), 0);
  const std::string ask = "bash -c 'source " + path + "; COMP_WORDS=(shoal serve --l); COMP_CWORD=2; _shoal; test \"${COMPREPLY[*]}\" = --loud'";
  EXPECT_EQ(std::system(ask.c_str()), 0);
  const std::string choice = "bash -c 'source " + path + "; COMP_WORDS=(shoal serve --kind t); COMP_CWORD=3; _shoal; test \"${COMPREPLY[*]}\" = two'";
  EXPECT_EQ(std::system(choice.c_str()), 0);
  std::remove(path.c_str());
}

TEST_F(CliDocs, ChoicesAreThoseOfAFixedList) {
  EXPECT_THAT(option_choices(*verb("serve")->get_option("--kind")), ElementsAre("one", "two"));
  EXPECT_TRUE(option_choices(*verb("serve")->get_option("--port")).empty());
}

TEST_F(CliDocs, ThePageOfAVerbHasItsOptionsWithDefaultsAndEnvironment) {
  const std::string page = man_page(app_, verb("serve"), "1.2");
  EXPECT_TRUE(page.starts_with(".TH SHOAL\\-SERVE 1 \"\" \"Shoal 1.2\""));
  EXPECT_THAT(page, HasSubstr("\\fBshoal serve\\fR [\\fIOPTIONS\\fR] \\fIpath\\fR\n"));
  EXPECT_THAT(page, HasSubstr("\\fB\\-p\\fR, \\fB\\-\\-port\\fR"));
  EXPECT_THAT(page, HasSubstr("Default: 8080. Environment: SHOAL_PORT."));
  EXPECT_THAT(page, HasSubstr("One of one, two."));
  EXPECT_THAT(page, Not(HasSubstr("help")));
}

TEST_F(CliDocs, AFooterIsNotesThenExamples) {
  const std::string page = man_page(app_, verb("serve"), "1");
  EXPECT_THAT(page, HasSubstr(".SH NOTES\nStops at Ctrl\\-C.\n"));
  EXPECT_THAT(page, HasSubstr(".SH EXAMPLES\n.nf\n  shoal serve models\n  shoal serve \\(aqa b\\(aq\n.fi\n"));
}

TEST_F(CliDocs, NothingInATextIsARequestOrAnEscapeOfRoff) {
  const std::string page = man_page(app_, verb("serve"), "1");
  EXPECT_THAT(page, HasSubstr("Don\\(aqt"));
  EXPECT_THAT(page, HasSubstr("\\e"));
  EXPECT_THAT(page, HasSubstr("\\(gatick\\(ga"));
  for (const std::string& line : std::vector<std::string>(absl::StrSplit(page, '\n'))) {
    EXPECT_TRUE(line.empty() || line[0] != '\'') << line;
  }
}

TEST_F(CliDocs, TheRootPageListsTheVerbsAndTheExitStatus) {
  const std::string page = man_page(app_, nullptr, "1");
  for (const char* name : {"serve", "load", "run", "config"}) EXPECT_THAT(page, HasSubstr(std::string("\\fBshoal\\-") + name + "\\fR(1)"));
  EXPECT_THAT(page, HasSubstr(".SH EXIT STATUS"));
  EXPECT_THAT(man_page(app_, verb("config"), "1"), HasSubstr("\\fBcheck\\fR [\\fIOPTIONS\\fR]")) << "verbs of a verb are in its synopsis";
}

}  // namespace
}  // namespace shoal
