#include "apps/top.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "apps/table.h"
#include "nlohmann/json.hpp"

namespace shoal {
namespace {

using testing::HasSubstr;
using testing::Not;

Json model(const std::string& id, const std::string& state, int next, int generated, int counted, int on_time) {
  return {{"id", id}, {"state", state}, {"next", next}, {"running", 1}, {"waiting", 2}, {"generated_tokens", generated}, {"prompt_tokens", 10 * generated},
          {"attainment", {{"tokens", 0.5}, {"tokens_counted", counted}, {"tokens_on_time", on_time}}}, {"slo", {{"ttft", 10}, {"tbt", 0.1}}}, {"loads", 1}};
}

Json status(double time, int generated) {
  return {{"time", time}, {"requests", 3}, {"switches_last_minute", 4},
          {"models", Json::array({model("sleeps", "unloaded", 0, 0, 0, 0), model("waits", "unloaded", 1, 0, 0, 0), model("runs", "loaded", 0, generated, generated, generated / 2)})},
          {"nodes", Json::array({{{"id", 2}, {"memory", 1000 << 20}, {"weights", 500 << 20}, {"kv_bound", 100 << 20}, {"free", 400 << 20}, {"host_memory", 0}}})}};
}

TEST(Top, ShowsHowExpertsAreSpreadAndFound) {
  Json now = status(12, 150);
  now["models"][2]["experts"] = {{"lookups", 200}, {"hits", 150}, {"bytes_fetched", 3 << 20}, {"skew", {1.25, 4.0, 2.5, 1.5}}};
  EXPECT_THAT(top_screen(now, status(10, 50), {.width = 200}),
              HasSubstr("experts: 75.0 % found on the device, 3.00 MiB fetched; the busiest has 4.0x the mean in layer 1, 2.5x the mean in layer 2, 1.5x the mean in layer 3"));
  EXPECT_THAT(top_screen(status(12, 150), status(10, 50), {.width = 200}), Not(HasSubstr("experts")));
}

TEST(Top, ShowsRatesOfTheTimeBetweenTwoLooks) {
  const std::string text = top_screen(status(12, 150), status(10, 50), {.width = 200, .server = "here"});
  EXPECT_THAT(text, HasSubstr("Shoal at here   3 requests   4 loads in the last minute"));
  EXPECT_THAT(text, HasSubstr("50.0"));    // tokens per second
  EXPECT_THAT(text, HasSubstr("500.0"));   // of prompts
  EXPECT_THAT(text, HasSubstr("50.0 %"));  // on time
  EXPECT_THAT(text, HasSubstr("[WWWWWWWWWWWWWWWKKK............]"));
  EXPECT_THAT(text, Not(HasSubstr("\033")));
  EXPECT_LT(text.find("runs"), text.find("waits"));
  EXPECT_LT(text.find("waits"), text.find("sleeps"));
  EXPECT_THAT(top_screen(status(12, 150), status(10, 50), {.width = 200, .color = true}), HasSubstr("\033["));
}

TEST(Top, FitsTheScreen) {
  const std::string text = top_screen(status(12, 150), Json(), {.width = 40, .height = 5});
  size_t lines = 0;
  for (size_t from = 0; from < text.size(); ++lines) {
    const size_t end = text.find('\n', from);
    EXPECT_LE(end - from, 40u);
    from = end + 1;
  }
  EXPECT_EQ(lines, 5u);
  EXPECT_THAT(text, testing::ContainsRegex("[.][.][.] and [0-9]+ more"));
}

TEST(Top, ANarrowScreenHasFewerColumnsAndNoneIsCut) {
  for (const size_t width : {30, 40, 60, 80, 120}) {
    const std::string text = top_screen(status(12, 150), status(10, 50), {.width = width, .server = "unix:/run/user/1000/shoal-1000/8080.sock"});
    std::string shown;
    for (const std::string& line : std::vector<std::string>(absl::StrSplit(text, '\n'))) {
      EXPECT_LE(columns_of(line), width) << line;
      if (line.starts_with("MODEL")) shown = line;
    }
    EXPECT_THAT(shown, HasSubstr("STATE"));
    const size_t left_out = text.find("not shown: ");
    for (const char* heading : {"NEXT", "WAIT", "TOK/S", "ON TIME", "SINCE START", "TTFT", "WEIGHTS", "LOADS"}) {
      const bool there = shown.find(heading) != std::string::npos;
      std::string named = left_out == std::string::npos ? "" : text.substr(left_out);
      EXPECT_NE(there, absl::StrReplaceAll(named, {{"\n ", ""}}).find(heading) != std::string::npos) << heading << " at " << width << "\n" << text;
    }
  }
}

TEST(Top, ItsWordsAreThoseOfPeople) {
  Json now = status(12, 150);
  now["nodes"][0]["alpha"] = 0.8;
  now["models"][0]["switches_served"] = 4;
  now["models"][0]["switches_hidden"] = 3;
  now["models"][0]["switches_copied_nothing"] = 2;
  now["models"][0]["bytes_adopted"] = 9000;
  now["models"][0]["bytes_written"] = 1000;
  const std::string text = top_screen(now, status(10, 50), {.width = 250, .server = "here"});
  EXPECT_THAT(text, HasSubstr("decoding in time takes 80 % of the device"));
  EXPECT_THAT(text, HasSubstr("75 % of all loads let nobody wait"));
  EXPECT_THAT(text, HasSubstr("50 % copied nothing"));
  EXPECT_THAT(text, HasSubstr("90 % of weights were there"));
  for (const char* word : {"alpha", "EVER", "hidden"}) EXPECT_THAT(text, Not(HasSubstr(word)));
}

TEST(Top, AnswersOfAnotherShapeAreShownAsNothing) {
  for (const char* text : {"null", "[]", "{}", R"({"models":3,"nodes":"x"})", R"({"models":[1,null,{"id":5,"attainment":[]}],"nodes":[{}]})"}) {
    const Json odd = Json::parse(text);
    EXPECT_FALSE(top_screen(odd, odd, {}).empty());
    top_json(odd, odd);
  }
}

TEST(Top, MachinesGetRatesToo) {
  const Json out = top_json(status(12, 150), status(10, 50));
  EXPECT_DOUBLE_EQ(out["models"][2]["lately"]["tokens_per_second"], 50);
  EXPECT_TRUE(out["models"][0]["lately"]["on_time"].is_null());
}

}  // namespace
}  // namespace shoal
