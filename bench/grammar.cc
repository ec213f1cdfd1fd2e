// What structured output costs: compiling a grammar, and the token mask of each step, the first time that an answer gets
// to a place in the grammar (cold) and later (warm).
//
//   grammar PATH [--json] [--vocabulary N]   PATH: a folder with a tokenizer.json, or a GGUF file (also vocabulary-only)
//
// --vocabulary fills the vocabulary up to N tokens with made-up words, for vocabularies larger than one has at hand.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_format.h"
#include "apps/model_text.h"
#include "base/rng.h"
#include "nlohmann/json.hpp"
#include "text/grammar/gbnf_builder.h"
#include "text/grammar/grammar_matcher.h"
#include "text/tokenizer/tokenizer.h"

namespace shoal {
namespace {

double now_us() { return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

struct Case {
  const char* name;
  const char* schema;   // empty: any JSON object
  std::string answer;
};

struct Row {
  std::string name;
  double lower_us = 0, compile_us = 0;
  std::vector<double> cold_us, warm_us;  // per token: mask and advance
  double mebibytes = 0;
};

double mean(const std::vector<double>& v) {
  double sum = 0;
  for (const double x : v) sum += x;
  return v.empty() ? 0 : sum / static_cast<double>(v.size());
}
double largest(const std::vector<double>& v) { return v.empty() ? 0 : *std::max_element(v.begin(), v.end()); }

std::vector<Case> cases() {
  std::string long_text;
  while (long_text.size() < 900) long_text += "the quick brown fox jumps over the lazy dog, ";
  std::string wide = R"({"type":"object","properties":{)", wide_answer = "{";
  std::string required;
  for (int i = 0; i < 100; ++i) {
    const std::string name = absl::StrFormat("field_%d", i);
    absl::StrAppend(&wide, i ? "," : "", "\"", name, "\":{\"type\":\"", i % 2 ? "string" : "number", "\"}");
    absl::StrAppend(&required, i ? "," : "", "\"", name, "\"");
    absl::StrAppend(&wide_answer, i ? ", " : "", "\"", name, "\": ", i % 2 ? "\"some text\"" : "12.5");
  }
  return {
      {"person", R"({"type":"object","properties":{"name":{"type":"string"},"age":{"type":"integer","minimum":0,"maximum":150},
         "email":{"type":"string","format":"email"},"tags":{"type":"array","items":{"type":"string"},"maxItems":10},
         "address":{"type":"object","properties":{"street":{"type":"string"},"city":{"type":"string"},"zip":{"type":"string","pattern":"^\\d{5}$"}},
         "required":["street","city"]}},"required":["name","age","address"]})",
       R"({"name": "Ada Lovelace", "age": 36, "email": "ada@example.org", "tags": ["mathematics", "poetry"], "address": {"street": "12 St James's Square", "city": "London", "zip": "12345"}})"},
      {"any object", "", R"({"list": [1, 2.5, -3e10, null, true], "text": "a \"quoted\" word and a line\n", "nested": {"a": {"b": {"c": ["deep"]}}}})"},
      {"100 fields", "", wide_answer + "}"},
      {"maxLength 1000", R"({"type":"object","properties":{"text":{"type":"string","maxLength":1000}},"required":["text"]})", "{\"text\": \"" + long_text + "\"}"},
      {"enum of 500", "", "\"value number 377\""},
  };
}

StatusOr<std::string> gbnf_of(const Case& c) {
  const std::string name = c.name;
  if (name == "any object") return gbnf_of_json_object();
  if (name == "enum of 500") {
    std::vector<std::string> values;
    for (int i = 0; i < 500; ++i) values.push_back(absl::StrFormat("\"value number %d\"", i));
    return gbnf_of_choice(values);
  }
  if (name == "100 fields") {
    OrderedJson schema = {{"type", "object"}, {"properties", OrderedJson::object()}, {"required", OrderedJson::array()}};
    for (int i = 0; i < 100; ++i) {
      const std::string field = absl::StrFormat("field_%d", i);
      schema["properties"][field] = {{"type", i % 2 ? "string" : "number"}};
      schema["required"].push_back(field);
    }
    return gbnf_of_schema(schema);
  }
  ASSIGN_OR_RETURN(const OrderedJson schema, parse_ordered_json(c.schema));
  return gbnf_of_schema(schema);
}

// The longest token at each place.
std::vector<TokenId> greedy_tokens(const TokenVocabulary& vocabulary, std::string_view text) {
  std::vector<TokenId> ids;
  while (!text.empty()) {
    size_t length = std::min(text.size(), vocabulary.token_bytes_max());
    std::optional<TokenId> id;
    for (; length > 0; --length) {
      id = vocabulary.token_id(text.substr(0, length));
      if (id && !vocabulary.is_control(*id)) break;
    }
    if (length == 0) break;
    ids.push_back(*id);
    text.remove_prefix(length);
  }
  return ids;
}

// The tokenizer's tokens, and words of letters with and without a space before them up to `size` of all.
std::shared_ptr<const TokenVocabulary> vocabulary_of(const Tokenizer& tokenizer, uint32_t size) {
  const auto real = TokenVocabulary::of(tokenizer);
  if (size <= real->size()) return real;
  std::vector<TokenVocabulary::Token> tokens;
  for (uint32_t i = 0; i < size; ++i) {
    const auto id = static_cast<TokenId>(i);
    std::string bytes(real->bytes(id));
    if (i >= real->size()) {
      if (counter_bits(1, i, 0) % 2 == 0) bytes += ' ';
      for (uint64_t n = 4 + counter_bits(2, i, 0) % 6, k = 0; k < n; ++k) bytes += static_cast<char>('a' + counter_bits(3, i, k) % 26);
    }
    if (!bytes.empty()) tokens.push_back({id, bytes, real->is_control(id)});
  }
  return std::make_shared<const TokenVocabulary>(std::move(tokens), size);
}

StatusOr<Row> run(const Case& c, const std::shared_ptr<const TokenVocabulary>& vocabulary) {
  Row row{c.name};
  double begin = now_us();
  ASSIGN_OR_RETURN(const std::string gbnf, gbnf_of(c));
  row.lower_us = now_us() - begin;
  begin = now_us();
  ASSIGN_OR_RETURN(const std::unique_ptr<GrammarMatcher> matcher, GrammarMatcher::create({gbnf, {}}, vocabulary));
  row.compile_us = now_us() - begin;
  const std::vector<TokenId> ids = greedy_tokens(*vocabulary, c.answer);
  for (std::vector<double>* times : {&row.cold_us, &row.warm_us}) {
    auto at = matcher->start();
    for (const TokenId id : ids) {
      begin = now_us();
      ASSIGN_OR_RETURN(const GrammarMatcher::Allowed allowed, matcher->allowed(at));
      if (!allowed.mask->holds(id)) return invalid_argument(c.name, ": the answer's token ", id, " is not allowed");
      RETURN_IF_ERROR(matcher->advance(at, id));
      times->push_back(now_us() - begin);
    }
    ASSIGN_OR_RETURN(const GrammarMatcher::Allowed end, matcher->allowed(at));
    if (!end.may_end) return invalid_argument(c.name, ": the answer is not complete");
  }
  row.mebibytes = static_cast<double>(matcher->bytes()) / (1 << 20);
  return row;
}

int main_of(int argc, char** argv) {
  bool json = false;
  uint32_t size = 0;
  for (int i = 2; i < argc; ++i) {
    json |= std::string(argv[i]) == "--json";
    if (std::string(argv[i]) == "--vocabulary" && i + 1 < argc && !absl::SimpleAtoi(argv[i + 1], &size)) argc = 0;
  }
  if (argc < 2) {
    std::fprintf(stderr, "usage: grammar PATH [--json] [--vocabulary N]\n");
    return 2;
  }
  const auto tokenizer = load_tokenizer(argv[1]);
  if (!tokenizer.ok()) {
    std::fprintf(stderr, "%s\n", std::string(tokenizer.status().message()).c_str());
    return 1;
  }
  const double begin = now_us();
  const auto vocabulary = vocabulary_of(**tokenizer, size);
  const double vocabulary_us = now_us() - begin;
  if (!json) {
    std::printf("%u tokens, prepared in %.1f ms\n%-16s %10s %10s %7s %12s %12s %12s %12s %8s\n", vocabulary->size(), vocabulary_us / 1000, "grammar", "lower us",
                "compile us", "tokens", "cold mean us", "cold max us", "warm mean us", "warm max us", "MiB");
  }
  for (const Case& c : cases()) {
    const auto row = run(c, vocabulary);
    if (!row.ok()) {
      std::fprintf(stderr, "%s\n", std::string(row.status().message()).c_str());
      return 1;
    }
    if (json) {
      const Json line = {{"grammar", row->name}, {"vocabulary", vocabulary->size()}, {"vocabulary_us", vocabulary_us}, {"lower_us", row->lower_us},
                         {"compile_us", row->compile_us}, {"tokens", row->cold_us.size()}, {"cold_us_mean", mean(row->cold_us)}, {"cold_us_max", largest(row->cold_us)},
                         {"warm_us_mean", mean(row->warm_us)}, {"warm_us_max", largest(row->warm_us)}, {"mebibytes", row->mebibytes}};
      std::printf("%s\n", line.dump().c_str());
    } else {
      std::printf("%-16s %10.0f %10.0f %7zu %12.1f %12.1f %12.2f %12.2f %8.2f\n", row->name.c_str(), row->lower_us, row->compile_us, row->cold_us.size(),
                  mean(row->cold_us), largest(row->cold_us), mean(row->warm_us), largest(row->warm_us), row->mebibytes);
    }
  }
  return 0;
}

}  // namespace
}  // namespace shoal

int main(int argc, char** argv) { return shoal::main_of(argc, argv); }
