#include "apps/json_values.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "apps/json_lines.h"
#include "apps/table.h"
#include "nlohmann/json.hpp"

namespace shoal {
namespace {

TEST(JsonValues, WhatAPeerLeftOutOrWroteOtherwiseIsNothing) {
  const Json object = Json::parse(R"({"text":"a","number":1.5,"list":[1],"object":{"x":1},"null":null})");
  EXPECT_EQ(text_at(object, "text"), "a");
  EXPECT_EQ(number_at(object, "number"), 1.5);
  EXPECT_EQ(list_at(object, "list").size(), 1u);
  EXPECT_EQ(member(object, "object")["x"], 1);
  for (const char* key : {"missing", "null", "object", "list"}) {
    EXPECT_EQ(text_at(object, key), "") << key;
    EXPECT_EQ(number_at(object, key, -1), -1) << key;
  }
  EXPECT_TRUE(list_at(object, "text").empty());
  EXPECT_TRUE(list_at(object, "missing").is_array());
}

TEST(JsonValues, APeerThatAnswersNoObjectSaysNothing) {
  for (const Json& other : {Json(), Json(7), Json("text"), Json::array({1})}) {
    EXPECT_EQ(text_at(other, "a"), "");
    EXPECT_EQ(number_at(other, "a"), 0);
    EXPECT_TRUE(member(other, "a").is_object());
    EXPECT_TRUE(list_at(other, "a").empty());
  }
}

TEST(JsonLine, IsOneLineToEveryReader) {
  const std::string line = json_line(Json{{"text", "a\nb\r\xc2\x85\xe2\x80\xa8\xe2\x80\xa9z"}});
  EXPECT_EQ(line, "{\"text\":\"a\\nb\\r\\u0085\\u2028\\u2029z\"}\n");
  EXPECT_EQ(Json::parse(line)["text"], "a\nb\r\xc2\x85\xe2\x80\xa8\xe2\x80\xa9z") << "and the same text";
}

TEST(JsonLine, BytesThatAreNoTextAreReplacedNotThrown) {
  const std::string line = json_line(Json{{"text", "\xff\xfe"}});
  EXPECT_TRUE(Json::accept(line));
}

TEST(CutText, CountsCharactersAndShowsWhatWasCut) {
  EXPECT_EQ(columns_of("größe"), 5u);
  EXPECT_EQ(cut_text("größe", 5), "größe");
  EXPECT_EQ(columns_of(cut_text("größer", 5)), 5u);
  EXPECT_TRUE(cut_text("größer", 5).ends_with("…"));
  EXPECT_EQ(columns_of(cut_text("größer", 1)), 1u);
  EXPECT_LE(columns_of(cut_text("größer", 0)), 0u);
}

TEST(CountText, OneIsOneAndTheOthersAreMany) {
  EXPECT_EQ(count_text(1, "request"), "1 request");
  EXPECT_EQ(count_text(0, "request"), "0 requests");
  EXPECT_EQ(count_text(12, "request"), "12 requests");
}

}  // namespace
}  // namespace shoal
