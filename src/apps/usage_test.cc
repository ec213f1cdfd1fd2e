#include "apps/usage.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "CLI/CLI.hpp"
#include "apps/serve_flags.h"

namespace shoal {
namespace {

using testing::HasSubstr;

// What is wrong with these words, for a program of a few verbs.
std::string wrong_with(std::vector<std::string> words) {
  CLI::App app("", "shoal");
  app.require_subcommand(1);
  ServeFlags flags;
  std::string model, prompt;
  add_serve_flags(*app.add_subcommand("serve"), flags);
  app.add_subcommand("list")->alias("ls");
  CLI::App* run = app.add_subcommand("run");
  run->add_option("model", model)->required();
  run->add_option("prompt", prompt);
  app.add_subcommand("config")->require_subcommand(1)->add_subcommand("check");
  std::reverse(words.begin(), words.end());
  try {
    app.parse(words);
  } catch (const CLI::ParseError& error) {
    return verb_typed(app) + ": " + usage_error(app, error);
  }
  return "";
}

TEST(Usage, AnUnknownVerbOrFlagNamesTheNearest) {
  EXPECT_EQ(wrong_with({"srve", "models"}), "shoal: there is no verb 'srve'; did you mean 'serve'?");
  EXPECT_EQ(wrong_with({"config", "chekc"}), "shoal config: there is no verb 'chekc'; did you mean 'check'?");
  EXPECT_EQ(wrong_with({"serve", "models", "--prot", "9000"}), "shoal serve: there is no flag --prot; did you mean '--port'?");
  EXPECT_EQ(wrong_with({"serve", "--max-model-length=5"}), "shoal serve: there is no flag --max-model-length; did you mean '--max-model-len'?");
  EXPECT_EQ(wrong_with({"--verbose"}), "shoal: there is no flag --verbose");
}

TEST(Usage, AWordTooMuchIsToldFromAVerb) {
  EXPECT_EQ(wrong_with({"run", "m", "what", "is"}), "shoal run: 'is' was not expected; what has several words goes in quotes");
}

TEST(Usage, APortOutOfRangeIsToldTheRange) {
  for (const char* port : {"99999", "-1", "http"}) EXPECT_THAT(wrong_with({"serve", "--port", port}), HasSubstr("not in range 0 to 65535")) << port;
  EXPECT_EQ(wrong_with({"serve", "--port", "0"}), "");
}

TEST(Usage, ModelsToPreloadAreNamedAsThoseToPinAre) {
  const auto preload = [](std::vector<std::string> words) {
    CLI::App verb;
    ServeFlags flags;
    add_serve_flags(verb, flags);
    std::reverse(words.begin(), words.end());
    verb.parse(words);
    return flags.path + ":" + flags.preload;
  };
  EXPECT_EQ(preload({"m", "--preload"}), "m:all");
  EXPECT_EQ(preload({"m", "--preload", "--port", "1"}), "m:all");
  EXPECT_EQ(preload({"m", "--preload", "a"}), "m:a");
  EXPECT_EQ(preload({"m", "--preload=a,b"}), "m:a,b");
  EXPECT_EQ(preload({"m", "--preload", "a", "--preload", "b"}), "m:a,b");
  EXPECT_EQ(preload({"m", "--preload=none"}), "m:none");
  EXPECT_EQ(preload({"m"}), "m:");
}

}  // namespace
}  // namespace shoal
