#include "gateway/structured_fields.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gateway/openai_request.h"
#include "gateway/prepare.h"
#include "gateway/test_support.h"

namespace shoal {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

class StructuredTest : public testing::Test {
 protected:
  StructuredTest() : model_(test::World::entry(0, "tiny")), text_(*test::World::load_text(model_)) {}

  ApiResult<PreparedRequest> completion(const std::string& more) {
    auto request = parse_completion_request(R"({"model":"m","prompt":"hi",)" + more + "}", {});
    if (!request.ok()) return request.error();
    return prepare_completion(*request, {.model = std::make_shared<const ModelEntry>(model_), .text = text_, .max_model_len = 100, .fallback_seed = 0, .now_unix_seconds = 0, .grammars = &cache_});
  }
  std::string gbnf(const std::string& more) {
    const auto prepared = completion(more);
    EXPECT_TRUE(prepared.ok()) << more << ": " << prepared.error().message;
    if (!prepared.ok()) return "";
    const GrammarRef& grammar = (*prepared).request.sampling.grammar;
    return grammar ? grammar->gbnf : "none";
  }
  ApiError refused(const std::string& more) {
    const auto prepared = completion(more);
    EXPECT_FALSE(prepared.ok()) << more;
    return prepared.ok() ? ApiError{} : prepared.error();
  }

  ModelEntry model_;
  std::shared_ptr<const ModelText> text_;
  GrammarCache cache_;
};

TEST_F(StructuredTest, EveryDialectGivesTheSameGrammar) {
  const std::string schema = R"({"type":"object","properties":{"z":{"type":"integer"},"a":{"type":"boolean"}},"required":["z"]})";
  const std::string expected = gbnf(R"("response_format":{"type":"json_schema","json_schema":{"name":"n","strict":true,"schema":)" + schema + "}}");
  EXPECT_LT(expected.find("\\\"z\\\""), expected.find("\\\"a\\\"")) << "properties keep the client's order";
  EXPECT_EQ(gbnf(R"("response_format":{"type":"json_schema","schema":)" + schema + "}"), expected);
  EXPECT_EQ(gbnf(R"("response_format":{"type":"json_object","schema":)" + schema + "}"), expected);
  EXPECT_EQ(gbnf(R"("guided_json":)" + schema), expected);
  EXPECT_EQ(gbnf(R"("structured_outputs":{"json":)" + schema + "}"), expected);
  EXPECT_EQ(gbnf(R"("json_schema":)" + schema), expected);
  EXPECT_EQ(gbnf("\"guided_json\":" + Json(schema).dump()), expected) << "also as text";

  EXPECT_EQ(gbnf(R"("guided_regex":"[a-c]+")"), gbnf(R"("structured_outputs":{"regex":"[a-c]+"})"));
  EXPECT_EQ(gbnf(R"("guided_choice":["a","b"])"), "root ::= \"a\" | \"b\"\n");
  EXPECT_EQ(gbnf(R"("structured_outputs":{"choice":["a","b"]})"), "root ::= \"a\" | \"b\"\n");
  EXPECT_EQ(gbnf(R"("grammar":"root ::= \"x\"")"), "root ::= \"x\"");
  EXPECT_EQ(gbnf(R"("guided_grammar":"root ::= \"x\"")"), "root ::= \"x\"");
  EXPECT_EQ(gbnf(R"("response_format":{"type":"json_object"})"), gbnf(R"("structured_outputs":{"json_object":true})"));
  EXPECT_THAT(gbnf(R"("response_format":{"type":"json_object"})"), StartsWith("root ::= json-object"));
}

TEST_F(StructuredTest, NothingIsAskedForByTextNullEmptyAndFalse) {
  for (const char* none : {R"("response_format":{"type":"text"})", R"("response_format":null)", R"("grammar":"")", R"("guided_json":null)", R"("structured_outputs":{})",
                           R"("structured_outputs":{"json_object":false})"}) {
    EXPECT_EQ(gbnf(none), "none") << none;
  }
}

TEST_F(StructuredTest, FaultsAre400WithTheFieldAndThePlaceWithin) {
  struct Row {
    const char *fields, *param, *code, *message;
  };
  const Row rows[] = {
      {R"("response_format":7)", "response_format", "invalid_value", "an object"},
      {R"("response_format":{})", "response_format.type", "unsupported_value", "missing"},
      {R"("response_format":{"type":"xml"})", "response_format.type", "unsupported_value", "\"xml\""},
      {R"("response_format":{"type":"json_schema"})", "response_format.json_schema", "invalid_value", "'schema'"},
      {R"("response_format":{"type":"json_schema","json_schema":{"schema":{"properties":{"a":{"not":{}}}}}})", "response_format.json_schema.schema", "invalid_schema", "#/properties/a/not"},
      {R"("response_format":{"type":"json_schema","json_schema":{"schema":[1]}})", "response_format.json_schema.schema", "invalid_value", "JSON schema"},
      {R"("guided_json":"{")", "guided_json", "invalid_schema", "byte"},
      {R"("guided_json":{"$ref":"#"})", "guided_json", "invalid_schema", "left-recursive"},
      {R"x("guided_regex":"(?=a)")x", "guided_regex", "invalid_grammar", "look-ahead"},
      {R"("guided_regex":5)", "guided_regex", "invalid_value", "a string"},
      {R"("guided_choice":[])", "guided_choice", "invalid_value", "list"},
      {R"("guided_choice":[1])", "guided_choice", "invalid_value", "list of strings"},
      {R"("guided_choice":[""])", "guided_choice", "invalid_grammar", "empty"},
      {R"("grammar":"root ::= x")", "grammar", "invalid_grammar", "no rule 'x'"},
      {R"("grammar":"root ::= <[9999]>")", "grammar", "invalid_grammar", "vocabulary"},
      {R"("structured_outputs":{"regex":"["})", "structured_outputs.regex", "invalid_grammar", "']'"},
      {R"("structured_outputs":[])", "structured_outputs", "invalid_value", "an object"},
      {R"("structured_outputs":{"structural_tag":{}})", "structured_outputs.structural_tag", "unsupported_value", "not supported"},
      {R"("grammar":"root ::= \"a\"","guided_choice":["a"])", "grammar", "invalid_value", "'guided_choice' both"},
      {R"("response_format":{"type":"json_object"},"guided_regex":"a")", "guided_regex", "invalid_value", "'response_format' both"},
  };
  for (const Row& row : rows) {
    const ApiError error = refused(row.fields);
    EXPECT_EQ(error.http_status, 400) << row.fields;
    EXPECT_EQ(error.param, row.param) << row.fields;
    EXPECT_EQ(error.code, row.code) << row.fields;
    EXPECT_THAT(error.message, HasSubstr(row.message)) << row.fields;
  }
  EXPECT_THAT(refused("\"grammar\":\"root ::= \\\"" + std::string(2 << 20, 'a') + "\\\"\"").message, HasSubstr("the limit is"));
}

TEST_F(StructuredTest, RepeatedWishesShareOneGrammar) {
  const auto first = completion(R"("guided_regex":"[a-z]+")");
  const auto second = completion(R"("guided_regex":"[a-z]+")");
  EXPECT_EQ(&*(*first).request.sampling.grammar, &*(*second).request.sampling.grammar);
  const auto other = completion(R"("guided_choice":["[a-z]+"])");
  EXPECT_NE((*other).request.sampling.grammar, (*first).request.sampling.grammar);
}

}  // namespace
}  // namespace shoal
