#include "text/grammar/gbnf_builder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nlohmann/json.hpp"

namespace shoal {
namespace {

using ::testing::HasSubstr;

std::string schema_error(const std::string& schema) {
  const auto gbnf = gbnf_of_schema(OrderedJson::parse(schema));
  return gbnf.ok() ? "none: " + *gbnf : std::string(gbnf.status().message());
}

TEST(GbnfBuilder, EmbedsASchemaInALargerGrammar) {
  GbnfBuilder builder;
  const auto rule = builder.add_schema("arguments", OrderedJson::parse(R"({"type":"object","properties":{"a":{"const":1}},"required":["a"]})"));
  ASSERT_TRUE(rule.ok()) << rule.status();
  EXPECT_EQ(*rule, "arguments");
  builder.add_rule("root", GbnfBuilder::literal("<call>\n") + " " + *rule + " " + GbnfBuilder::literal("\"\\"));
  const std::string text = std::move(builder).text();
  EXPECT_EQ(text.find("root ::= \"<call>\\n\" arguments \"\\\"\\\\\"\n"), 0u) << text;
  EXPECT_THAT(text, HasSubstr("arguments ::= "));
  EXPECT_THAT(text, HasSubstr("\"\\\"a\\\"\""));
}

TEST(GbnfBuilder, NamesThatAreTakenGetANumber) {
  GbnfBuilder builder;
  EXPECT_EQ(builder.add_rule("x", "\"1\""), "x");
  const std::string second = builder.add_rule("x", "\"2\"");
  EXPECT_NE(second, "x");
  EXPECT_EQ(builder.add_rule("a b/c", "\"3\""), "a-b-c");
}

TEST(JsonSchema, WhatIsNotSupportedIsNamedWithItsPlace) {
  const std::pair<const char*, const char*> cases[] = {
      {R"({"not":{}})", "#/not: the keyword 'not'"},
      {R"({"properties":{"a":{"items":{"if":{}}}}})", "#/properties/a/items/if"},
      {R"({"type":"array","uniqueItems":true})", "uniqueItems"},
      {R"({"type":"integer","multipleOf":5})", "multipleOf"},
      {R"({"type":"string","format":"idn-email"})", "#/format: the format 'idn-email'"},
      {R"x({"type":"string","pattern":"(?=a)"})x", "look-ahead"},
      {R"({"type":"string","pattern":"a","minLength":2})", "minLength"},
      {R"({"type":"strnig"})", "'strnig'"},
      {R"({"type":[]})", "#/type"},
      {R"({"$ref":"other.json#/x"})", "within the schema"},
      {R"({"$ref":"#/$defs/x"})", "leads nowhere"},
      {R"({"enum":[]})", "#/enum"},
      {R"({"type":"string","enum":[1]})", "none of the values"},
      {R"({"type":"integer","minimum":3,"maximum":2})", "no integer"},
      {R"({"type":"number","exclusiveMinimum":3,"maximum":3})", "no number"},
      {R"({"type":"array","minItems":3,"maxItems":2})", "minItems"},
      {R"({"type":"array","minItems":-1})", "#/minItems"},
      {R"({"oneOf":[{"type":"integer"},{"type":"number"}]})", "alternatives 0 and 1"},
      {R"({"allOf":[{"type":"string"},{"type":"integer"}]})", "allows nothing"},
      {R"({"allOf":[{"pattern":"a"},{"pattern":"b"}]})", "hold at once"},
      {R"({"properties":{"a":false},"required":["a"]})", "#/properties/a"},
      {R"([1])", "must be an object or a boolean"},
  };
  for (const auto& [schema, expected] : cases) EXPECT_THAT(schema_error(schema), HasSubstr(expected)) << schema;
}

TEST(JsonSchema, DeepAndLargeSchemasAreRefusedNotFollowed) {
  std::string deep = "true";
  for (int i = 0; i < 500; ++i) deep = R"({"items":)" + deep + "}";
  EXPECT_THAT(schema_error(deep), HasSubstr("nested too deeply"));
  EXPECT_THAT(schema_error(R"({"$defs":{"a":{"allOf":[{"$ref":"#/$defs/a"}]}},"$ref":"#/$defs/a"})"), HasSubstr("deeply"));
  std::string doubling = R"({"$defs":{"d0":{"type":"object","properties":{"x":{"type":"string"}}})";
  for (int i = 1; i < 20; ++i) {
    const std::string before = "{\"$ref\":\"#/$defs/d" + std::to_string(i - 1) + "\"}";
    doubling += ",\"d" + std::to_string(i) + "\":{\"allOf\":[" + before + "," + before + "]}";
  }
  EXPECT_THAT(schema_error(doubling + R"(},"$ref":"#/$defs/d19"})"), HasSubstr("too large"));
}

TEST(Choice, ListsAreChecked) {
  EXPECT_EQ(*gbnf_of_choice({"yes", "n\"o"}), "root ::= \"yes\" | \"n\\\"o\"\n");
  EXPECT_FALSE(gbnf_of_choice({}).ok());
  EXPECT_FALSE(gbnf_of_choice({""}).ok());
  EXPECT_FALSE(gbnf_of_choice({"\xff"}).ok());
}

}  // namespace
}  // namespace shoal
