#include "text/answers/loose_values.h"

#include <gtest/gtest.h>

#include "nlohmann/json.hpp"

namespace shoal {
namespace {

std::string python(std::string_view text) {
  const auto arguments = python_arguments(text);
  return arguments ? arguments->dump() : "none";
}
std::string gemma(std::string_view text) {
  const auto arguments = gemma_arguments(text);
  return arguments ? arguments->dump() : "none";
}
std::string typed(std::string_view text, const char* schema) {
  const OrderedJson parsed = OrderedJson::parse(schema);
  return typed_value(text, &parsed).dump();
}
std::string xml(std::string_view text, const char* schema = "{}") {
  const auto arguments = xml_arguments(text, "", OrderedJson::parse(schema));
  return arguments ? arguments->dump() : "none";
}

TEST(PythonArguments, LiteralsOfEitherLanguageAreRead) {
  EXPECT_EQ(python(""), "{}");
  EXPECT_EQ(python(R"(city="Bern", days=3)"), R"({"city":"Bern","days":3})");
  EXPECT_EQ(python("a=True, b=false, c=None, d=null, e=-1.5e3, f=+2"), R"({"a":true,"b":false,"c":null,"d":null,"e":-1500.0,"f":2})");
  EXPECT_EQ(python("a=[1, 'x', (2, 3)], b={'k': [], \"l\": {}}"), R"({"a":[1,"x",[2,3]],"b":{"k":[],"l":{}}})");
  EXPECT_EQ(python("a=[1,], b=(),"), R"({"a":[1],"b":[]})") << "a comma may end a list";
  EXPECT_EQ(python("  a = 1 \n, b =2 "), R"({"a":1,"b":2})");
}

TEST(PythonArguments, EscapesAreThoseOfPython) {
  EXPECT_EQ(python(R"(a='it\'s', b="\n\t\\\"")"), R"({"a":"it's","b":"\n\t\\\""})");
  EXPECT_EQ(python(R"(a="\x41\u00e9\U0001F642")"), "{\"a\":\"Aé🙂\"}");
  EXPECT_EQ(python(R"(a="\ud800")"), "{\"a\":\"\uFFFD\"}") << "half a pair is no character";
  EXPECT_EQ(python(R"(a="\U00110000")"), "{\"a\":\"\uFFFD\"}");
  EXPECT_EQ(python(R"(a="\q\u12")"), R"({"a":"qu12"})") << "an escape that is none is its letter";
}

TEST(PythonArguments, WhatDoesNotParseIsNone) {
  for (const char* text : {"a", "a=", "=1", "a=1 b=2", "a='x", "a=[1", "a=[1 2]", "a={'k'}", "a={'k':1", "a=(1]", "a=word", "a==1", "1", "\"a\"", "a=1,,b=2", "a(b)=1", "a=\"x\\", "a=1e", "a=--1"}) {
    EXPECT_EQ(python(text), "none") << text;
  }
}

TEST(PythonArguments, NestingIsBounded) {
  EXPECT_NE(python("a=" + std::string(60, '[') + std::string(60, ']')), "none");
  EXPECT_EQ(python("a=" + std::string(70, '[') + std::string(70, ']')), "none");
  EXPECT_EQ(python("a=" + std::string(100'000, '(')), "none");
}

TEST(PythonArguments, TheLastOfEqualNamesCounts) { EXPECT_EQ(python("a=1, b=2, a=3"), R"({"a":3,"b":2})"); }

TEST(GemmaArguments, StringsStandBetweenTheirOwnQuotes) {
  EXPECT_EQ(gemma(R"(city:<|"|>Be"rn<|"|>,days:[1,2],deep:{k:<|"|><|"|>})"), R"({"city":"Be\"rn","days":[1,2],"deep":{"k":""}})");
  EXPECT_EQ(gemma("a:true,b:null"), R"({"a":true,"b":null})");
  EXPECT_EQ(gemma(R"(a:<|"|>open)"), "none");
  EXPECT_EQ(gemma("a"), "none");
}

TEST(TypedValue, TheSchemaSaysWhatATextIs) {
  EXPECT_EQ(typed("5", R"({"type":"string"})"), R"("5")");
  EXPECT_EQ(typed("5", R"({"type":"integer"})"), "5");
  EXPECT_EQ(typed("5", R"({"type":["string","integer"]})"), "5");
  EXPECT_EQ(typed("5.5", R"({"type":["integer","string"]})"), R"("5.5")");
  EXPECT_EQ(typed("True", R"({"type":"boolean"})"), "true");
  EXPECT_EQ(typed("True", R"({"type":"string"})"), R"("True")");
  EXPECT_EQ(typed("None", R"({"anyOf":[{"type":"string"},{"type":"null"}]})"), "null");
  EXPECT_EQ(typed("[1,2]", R"({"type":"array"})"), "[1,2]");
  EXPECT_EQ(typed("{\"a\":1}", R"({"type":"object"})"), R"({"a":1})");
  EXPECT_EQ(typed("  7 ", R"({"type":"number"})"), "7") << "space around a value is none of it";
  EXPECT_EQ(typed("  7 ", R"({"type":"string"})"), R"("  7 ")") << "but all of a text";
}

TEST(TypedValue, TypesAreFoundInEnumsConstsAndAlternatives) {
  EXPECT_EQ(typed("1", R"({"enum":[1,2]})"), "1");
  EXPECT_EQ(typed("1", R"({"enum":["1","2"]})"), R"("1")");
  EXPECT_EQ(typed("2", R"({"const":2})"), "2");
  EXPECT_EQ(typed("3", R"({"oneOf":[{"allOf":[{"type":"integer"}]}]})"), "3");
}

TEST(TypedValue, WithoutASchemaWhatIsJsonIsJson) {
  EXPECT_EQ(typed_value("3", nullptr).dump(), "3");
  EXPECT_EQ(typed_value("three", nullptr).dump(), R"("three")");
  EXPECT_EQ(typed_value("\"three\"", nullptr).dump(), R"("\"three\"")") << "quotes of a text are its own";
  EXPECT_EQ(typed_value("\xff", nullptr).dump(), "\"\uFFFD\"") << "bytes that are no text";
  EXPECT_EQ(typed_value("", nullptr).dump(), R"("")");
}

TEST(XmlArguments, ElementsNestAsTheArgumentsDo) {
  EXPECT_EQ(xml(""), "{}");
  EXPECT_EQ(xml("<city>Bern</city><days>3</days>"), R"({"city":"Bern","days":3})");
  EXPECT_EQ(xml("<days><item>1</item><item>2</item></days>"), R"({"days":[1,2]})");
  EXPECT_EQ(xml("<where><lat>1.5</lat></where>"), R"({"where":{"lat":1.5}})");
  EXPECT_EQ(xml("<days><item>1</item></days>", R"({"properties":{"days":{"items":{"type":"string"}}}})"), R"({"days":["1"]})");
}

TEST(XmlArguments, WhatDoesNotCloseIsNone) {
  for (const char* text : {"<a>", "<a>1", "<a>1</b>", "a", "<a", "<a>1</a>x", "</a>", "<item>1</item>", "<x><a>1</a><item>2</item></y>"}) EXPECT_EQ(xml(text), "none") << text;
  std::string deep;
  for (int i = 0; i < 100; ++i) deep += "<a>";
  EXPECT_EQ(xml(deep), "none");
}

TEST(PropertySchema, IsNullWhereThereIsNone) {
  const OrderedJson schema = OrderedJson::parse(R"({"properties":{"a":{"type":"string"}}})");
  EXPECT_EQ((*property_schema(schema, "a"))["type"], "string");
  EXPECT_EQ(property_schema(schema, "b"), nullptr);
  EXPECT_EQ(property_schema(OrderedJson::parse("[1]"), "a"), nullptr);
  EXPECT_EQ(property_schema(OrderedJson::parse(R"({"properties":7})"), "a"), nullptr);
}

}  // namespace
}  // namespace shoal
