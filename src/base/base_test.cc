#include <gtest/gtest.h>

#include <thread>

#include "base/bytes.h"
#include "base/ids.h"
#include "base/json.h"
#include "base/log.h"
#include "base/nearest.h"
#include "base/queue.h"
#include "base/rng.h"
#include "nlohmann/json.hpp"

namespace shoal {
namespace {

TEST(Bytes, SizesAreReadInBinaryAndDecimalUnits) {
  EXPECT_EQ(*parse_bytes("2GiB"), 2 * kGiB);
  EXPECT_EQ(*parse_bytes("2g"), 2 * kGiB);
  EXPECT_EQ(*parse_bytes("1.5 MB"), 1500000u);
  EXPECT_EQ(*parse_bytes("4096"), 4096u);
}

TEST(Bytes, WhatIsNoSizeIsRefusedByName) {
  for (const char* text : {"", "GiB", "-1", "1x", "nan", "1e40", "2GiBs"}) {
    const auto bytes = parse_bytes(text);
    ASSERT_FALSE(bytes.ok()) << text;
    EXPECT_NE(bytes.status().message().find(text), std::string_view::npos);
  }
}

TEST(Bytes, PrintedSizesAreShort) {
  EXPECT_EQ(format_bytes(900), "900 B");
  EXPECT_EQ(format_bytes(3 * kGiB / 2), "1.50 GiB");
}

TEST(Rng, DrawsAreFunctionsOfSeedStreamAndCounter) {
  EXPECT_EQ(counter_bits(1, 2, 3), counter_bits(1, 2, 3));
  EXPECT_NE(counter_bits(1, 2, 3), counter_bits(1, 3, 2));
  EXPECT_NE(counter_bits(1, 2, 3), counter_bits(2, 1, 3));
}

TEST(Rng, UniformDrawsFillTheUnitInterval) {
  Rng rng(7);
  double sum = 0;
  for (int i = 0; i < 100000; ++i) {
    const double u = rng.uniform();
    ASSERT_GE(u, 0.0);
    ASSERT_LT(u, 1.0);
    sum += u;
  }
  EXPECT_NEAR(sum / 100000, 0.5, 0.01);
}

TEST(Json, BoundsAreEnforcedBeforeMemoryIsSpent) {
  EXPECT_TRUE(parse_json(R"({"a":[1,2,{"b":null}]})").ok());
  EXPECT_FALSE(parse_json(std::string(100, '[')).ok());
  EXPECT_FALSE(parse_json("[1,2,3]", {.values_max = 3}).ok());
  EXPECT_FALSE(parse_json(R"({"a":1,"a":2})").ok());
  EXPECT_FALSE(parse_json("{\"a\":\"\xff\"}").ok());
  EXPECT_FALSE(parse_json("1e999").ok());
}

TEST(Json, OrderedObjectsKeepTheOrderOfTheirKeysWithinTheSameBounds) {
  EXPECT_EQ(dump_ordered_json(*parse_ordered_json(R"({"z":{"b":[1],"a":{}},"y":"x"})")), R"({"z":{"b":[1],"a":{}},"y":"x"})");
  EXPECT_FALSE(parse_ordered_json(R"({"b":1,"a":2,"b":3})").ok());
  EXPECT_EQ(parse_ordered_json(R"({"b":1,"a":2,"b":3})", {.refuse_duplicate_keys = false})->dump(), R"({"b":3,"a":2})");
  EXPECT_FALSE(parse_ordered_json(std::string(100, '[')).ok());
  EXPECT_FALSE(parse_ordered_json("[1,2,3]", {.values_max = 3}).ok());
}

TEST(Json, ZeroBytesAreSaidToBeOfAFileThatIsNotWhole) {
  for (const auto& [text, byte] : {std::pair(std::string(9, '\0'), "byte 1 is zero"), {std::string("{\"a\": 1\0\0", 10), "byte 8 is zero"}}) {
    EXPECT_NE(parse_json(text).status().message().find(byte), absl::string_view::npos) << parse_json(text).status();
  }
}

TEST(Json, WrongTypesAndRangesNameTheKey) {
  const Json object = *parse_json(R"({"n": 3, "s": "x", "f": 2.0, "big": 18446744073709551615})");
  EXPECT_EQ(*json_int(object, "n", 0, 0, 10), 3);
  EXPECT_EQ(*json_int(object, "f", 0, 0, 10), 2);
  EXPECT_EQ(*json_int(object, "absent", 5, 0, 10), 5);
  EXPECT_FALSE(json_int(object, "big", 0, 0, 10).ok());
  const auto wrong = json_int(object, "s", 0, 0, 10);
  EXPECT_NE(wrong.status().message().find("'s'"), std::string_view::npos);
}

TEST(Json, InvalidBytesAreReplacedWhenWritten) {
  EXPECT_EQ(dump_json(Json(std::string("a\xff"))), "\"a\xEF\xBF\xBD\"");
}

TEST(Log, NamesFromFilesCannotSteerATerminal) {
  EXPECT_EQ(one_line("a\x1b[2Jb\nc"), "a\\x1b[2Jb\\x0ac");
  EXPECT_EQ(one_line("größe"), "größe");
}

TEST(Log, FieldsOfAMessageAreKeysOfTheirOwn) {
  EXPECT_EQ(log_fields("request id=r-1 status=200 ttft_ms=1.5 error=no such model x=-3 key=007"),
            R"("msg":"request","id":"r-1","status":200,"ttft_ms":1.5,"error":"no such model","x":-3,"key":"007")");
  EXPECT_EQ(log_fields("loading 'a=b' from x"), R"("msg":"loading 'a=b' from x")");
  EXPECT_EQ(log_fields("stopped"), R"("msg":"stopped")");
  EXPECT_EQ(log_fields("request level=\"x\" id= id=2"), R"("msg":"request","id":"")");
}

TEST(Nearest, TheNameWithTheFewestEditsIsTheOneThatWasMeant) {
  const std::vector<std::string> verbs = {"serve", "show", "run", "reload", "load", "tokenize"};
  for (const auto& [given, meant] : {std::pair("srve", "serve"), {"sevre", "serve"}, {"SHOW", "show"}, {"laod", "load"}, {"tokenise", "tokenize"}, {"rn", "run"}}) {
    EXPECT_EQ(did_you_mean(given, verbs), std::string("; did you mean '") + meant + "'?");
  }
}

TEST(Nearest, APartOfANameIsNearAndAnythingElseFarIsNotOffered) {
  const std::vector<std::string> models = {"tiny-llama", "Qwen3-0.6B-Instruct"};
  EXPECT_EQ(did_you_mean("qwen3", models), "; did you mean 'Qwen3-0.6B-Instruct'?");
  for (const std::string& far : {std::string("gpt-4o"), std::string("q"), std::string(), std::string(100'000, 'x')}) EXPECT_EQ(did_you_mean(far, models), "") << far.size();
  EXPECT_EQ(did_you_mean("x", std::vector<std::string>{}), "");
}

TEST(Queue, RefusesWhenFullAndDrainsAfterClose) {
  BoundedQueue<int> queue(2);
  EXPECT_TRUE(queue.try_push(1));
  EXPECT_TRUE(queue.try_push(2));
  EXPECT_FALSE(queue.try_push(3));
  EXPECT_TRUE(queue.push(3));
  queue.close();
  EXPECT_FALSE(queue.push(4));
  EXPECT_EQ(queue.pop(Duration(0)), 1);
  EXPECT_EQ(queue.pop(Duration(0)), 2);
  EXPECT_EQ(queue.pop(Duration(0)), 3);
  EXPECT_EQ(queue.pop(Duration(0)), std::nullopt);
}

TEST(Queue, WhatMustArriveTurnsNobodyAway) {
  BoundedQueue<int> queue(1);
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(queue.push(i));
  EXPECT_TRUE(queue.try_push(3));
  EXPECT_FALSE(queue.try_push(4));
  for (int i = 0; i < 3; ++i) EXPECT_EQ(queue.pop(Duration(0)), i);
  EXPECT_FALSE(queue.try_push(4)) << "the one that came this way still waits";
  EXPECT_EQ(queue.pop(Duration(0)), 3);
  EXPECT_TRUE(queue.try_push(4));
}

TEST(Queue, ItemsCrossThreadsInOrder) {
  BoundedQueue<int> queue(16);
  std::thread producer([&] {
    for (int i = 0; i < 1000; ++i) queue.push(i);
  });
  for (int i = 0; i < 1000; ++i) EXPECT_EQ(queue.pop(std::chrono::seconds(5)), i);
  producer.join();
}

}  // namespace
}  // namespace shoal
