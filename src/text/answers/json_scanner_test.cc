#include "text/answers/json_scanner.h"

#include <gtest/gtest.h>

#include <string>
#include <string_view>

#include "base/rng.h"
#include "nlohmann/json.hpp"

namespace shoal {
namespace {

using Status = JsonScanner::Status;

// Where the value ends: bytes pushed when it is done; 0 if it is bad before; npos if it is still going on.
size_t end_of(std::string_view text) {
  JsonScanner scanner;
  for (size_t i = 0; i < text.size(); ++i) {
    const Status status = scanner.push(text[i]);
    if (status != Status::kInside) return status == Status::kDone ? i + 1 : 0;
  }
  return std::string_view::npos;
}

TEST(JsonScanner, ValuesEndWithTheirLastByte) {
  for (const std::string_view text : {R"({})", R"([])", R"("")", R"(true)", R"(false)", R"(null)", R"({"a":1})", R"( [1, 2.5e-3 , "x"] )", R"({"a":{"b":[{}]}})", R"("\u00e9\"\\")",
                                      R"([-0.0,0,10,1E+2])", "\n\t {\"k\" :\r\n null}"}) {
    const size_t last = text.find_last_not_of(' ') + 1;
    EXPECT_EQ(end_of(text), last) << text;
  }
}

TEST(JsonScanner, WhatIsNoBeginningOfAValueIsBadAtOnce) {
  for (const std::string_view text : {"x", "}", "]", ",", ":", "{a", "{1", "{\"a\"1", "{\"a\":}", "[,", "[1,]", "[1 2]", "{\"a\":1,}", "tru ", "nulL", "01", "-x", "1.x", "[1.]", "[1e]", "[+1]",
                                      "[.5]", "\"\\x", "\"\\u12G", "{\"a\":1]", "[1}", "[--1"}) {
    if (text == "01") continue;  // at the top level a number has no end, so that what follows it is not looked at
    EXPECT_EQ(end_of(text), 0u) << text;
  }
  EXPECT_EQ(end_of("[01]"), 0u);
}

TEST(JsonScanner, ANumberAtTheTopNeverEnds) {
  for (const std::string_view text : {"1", "-12", "3.25", "1e9", "0"}) EXPECT_EQ(end_of(text), std::string_view::npos) << text;
}

TEST(JsonScanner, TheNestingIsBounded) {
  EXPECT_EQ(end_of(std::string(64, '[')), std::string_view::npos);
  EXPECT_EQ(end_of(std::string(65, '[')), 0u);
  EXPECT_EQ(end_of(std::string(64, '[') + std::string(64, ']')), 128u);
}

TEST(JsonScanner, SaysWhereItIs) {
  JsonScanner scanner;
  std::string where;
  for (const char c : std::string_view(R"({"k":["v",1],"l":{"m":2}})")) {
    scanner.push(c);
    where += scanner.in_key() ? 'k' : scanner.in_string() ? 's' : scanner.in_member_value() ? 'v' : '.';
  }
  //                 {"k":["v",1],"l":{"m":2}}
  EXPECT_EQ(where, ".kk.vvssvvvv.kk.vvkkvvvv.");
  EXPECT_EQ(scanner.depth(), 0u);
}

TEST(JsonScanner, ControlCharactersInStringsAreTakenAndEscaped) {
  const std::string_view raw = "{\"a\":\"x\ny\tz\x01\"}";
  EXPECT_EQ(end_of(raw), raw.size());
  JsonScanner scanner;
  std::string text;
  for (const char c : raw) {
    append_json_byte(c, scanner.in_string(), text);
    scanner.push(c);
  }
  EXPECT_EQ(nlohmann::json::parse(text)["a"], "x\ny\tz\x01");
}

// Texts of JSON's own characters: the scanner and a parser agree on which are whole values, and every beginning of one is inside.
TEST(JsonScanner, AgreesWithAParserOnRandomTexts) {
  constexpr std::string_view kPieces[] = {"{", "}", "[", "]", ",", ":", "\"", "\"a\"", "1", "-", "0", ".5", "e3", "true", "null", " ", "\\", "\"k\":"};
  Rng rng(5);
  size_t whole = 0;
  for (int round = 0; round < 40'000; ++round) {
    std::string text = rng.below(2) == 0 ? "[" : "{";
    for (uint64_t n = rng.below(8); n > 0; --n) text += kPieces[rng.below(std::size(kPieces))];
    const size_t end = end_of(text);
    if (end != 0 && end != std::string::npos) {
      ++whole;
      EXPECT_TRUE(nlohmann::json::accept(text.substr(0, end))) << text;
    } else {
      EXPECT_FALSE(nlohmann::json::accept(text)) << text;
    }
  }
  EXPECT_GT(whole, 1000u);
}

}  // namespace
}  // namespace shoal
