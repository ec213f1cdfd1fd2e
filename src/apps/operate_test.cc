// What the operator's verbs make of a server's answers.
#include "apps/operate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_split.h"
#include "apps/progress.h"
#include "apps/table.h"
#include "nlohmann/json.hpp"

namespace shoal {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(Ps, ShowsStateProgressRequestsAndErrors) {
  const Json models = {{"data", {{{"id", "a"}, {"status", {{"value", "loaded"}}}, {"max_model_len", 4096}, {"requests", {{"running", 3}, {"waiting", 2}}},
                                  {"memory", {{"weights", 1048576}, {"kv_used", 1048576}}}, {"last_used_seconds_ago", 130.0}},
                                 {{"id", "b"}, {"status", {{"value", "loading"}, {"progress", 0.42}}}},
                                 {{"id", "c"}, {"status", {{"value", "failed"}, {"error", "the file is cut"}}}},
                                 {{"id", "d"}, {"status", {{"value", "unloaded"}}}}}},
                       {"device", {{"memory", 8 * 1048576}, {"free", 6 * 1048576}, {"workspace", 3 * 1048576}}}};
  const Json ollama = {{"models", {{{"name", "a"}, {"size", 100}, {"size_vram", 100}}}}};
  const std::string table = ps_table(models, ollama, /*all=*/false);
  EXPECT_THAT(table, HasSubstr("2.00 MiB"));
  EXPECT_THAT(table, HasSubstr("100% GPU"));
  EXPECT_THAT(table, HasSubstr("3+2"));
  EXPECT_THAT(table, HasSubstr("2 minutes ago"));
  EXPECT_THAT(table, HasSubstr("loading 42 %"));
  EXPECT_THAT(table, HasSubstr("the file is cut"));
  EXPECT_THAT(table, HasSubstr("2.00 MiB of 8.00 MiB for weights and KV, and 3.00 MiB of workspace"));
  EXPECT_THAT(table, Not(HasSubstr("\nd ")));
  EXPECT_THAT(ps_table(models, ollama, /*all=*/true), HasSubstr("\nd "));
}

TEST(Ps, FitsFortyColumnsAndSaysWhatItLeavesOut) {
  const Json models = {{"data", {{{"id", "a-model-with-a-long-name"}, {"status", {{"value", "failed"}, {"error", "the file is cut, fetch it again from where it was"}}}}}},
                       {"device", {{"memory", 8 * 1048576}, {"free", 6 * 1048576}, {"workspace", 3 * 1048576}}}};
  const std::string table = ps_table(models, Json(), /*all=*/true, /*width=*/40);
  for (const std::string& line : std::vector<std::string>(absl::StrSplit(table, "\n"))) EXPECT_LE(columns_of(line), 40u) << line;
  EXPECT_THAT(table, HasSubstr("a-model-with-a-long-name"));
  EXPECT_THAT(table, HasSubstr("not shown: ID"));
  EXPECT_THAT(table, HasSubstr("    where it was"));
}

TEST(Ps, AnswersOfAnotherServerAreShownAsFarAsTheyGo) {
  for (const Json& odd : {Json(), Json::array(), Json{{"data", 3}}, Json{{"data", {1, "x", nullptr}}}, Json{{"data", {{{"id", 5}, {"status", "loaded"}}}}}}) {
    EXPECT_THAT(ps_table(odd, odd, true), HasSubstr("NAME"));
  }
}

TEST(Ps, TimesAreInWords) {
  EXPECT_EQ(ago(5), "5 seconds ago");
  EXPECT_EQ(ago(60), "1 minute ago");
  EXPECT_EQ(ago(7300), "2 hours ago");
}

TEST(Progress, TheLineFitsTheTerminal) {
  EXPECT_EQ(progress_text(1, 2, "half", 80), "[============>           ] half");
  EXPECT_EQ(progress_text(5, 2, "over", 80), "[========================] over");
  EXPECT_EQ(progress_text(0, 0, "no bar", 80), "no bar");
  EXPECT_EQ(progress_text(1, 2, "half", 10).size(), 9u);
}

}  // namespace
}  // namespace shoal
