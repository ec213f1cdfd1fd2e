// masks PATH: the token masks of grammars, for tests/mask_oracle.py. PATH: a folder with a tokenizer.json, or a GGUF file.
//
// One JSON object per line, each answered by one line. The first line out describes the vocabulary:
//   {"tokens": [bytes of each id in hex; "" for what never matches by its bytes]}
//   in:  {"gbnf": text} | {"schema": ...} | {"regex": text} | {"object": true}   begins anew with this grammar
//   out: {"gbnf": text, "mask": hex, "may_end": bool}                            bit i of byte k: token 8 k + i
//   in:  {"token": id}                                                            the token that came
//   out: {"mask": hex, "may_end": bool}
// Whatever cannot be done is answered {"error": text}.
#include <cstdio>
#include <iostream>
#include <memory>
#include <string>

#include "absl/strings/escaping.h"
#include "apps/model_text.h"
#include "nlohmann/json.hpp"
#include "text/grammar/gbnf_builder.h"
#include "text/grammar/grammar_matcher.h"

namespace shoal {
namespace {

std::string hex_of(std::string_view bytes) { return absl::BytesToHexString({bytes.data(), bytes.size()}); }

StatusOr<std::string> gbnf_of(const OrderedJson& line) {
  if (line.contains("gbnf")) return line["gbnf"].get<std::string>();
  if (line.contains("regex")) return gbnf_of_regex(line["regex"].get<std::string>());
  if (line.contains("object")) return gbnf_of_json_object();
  return gbnf_of_schema(line["schema"]);
}

class Walk {
 public:
  explicit Walk(std::shared_ptr<const TokenVocabulary> vocabulary) : vocabulary_(std::move(vocabulary)) {}

  StatusOr<Json> answer(const OrderedJson& line) {
    Json out;
    if (line.contains("token")) {
      if (matcher_ == nullptr) return invalid_argument("no grammar has been given");
      RETURN_IF_ERROR(matcher_->advance(at_, line["token"].get<TokenId>()));
    } else {
      ASSIGN_OR_RETURN(const std::string gbnf, gbnf_of(line));
      ASSIGN_OR_RETURN(matcher_, GrammarMatcher::create({gbnf, {}}, vocabulary_));
      at_ = matcher_->start();
      out["gbnf"] = gbnf;
    }
    ASSIGN_OR_RETURN(const GrammarMatcher::Allowed allowed, matcher_->allowed(at_));
    std::string bits((vocabulary_->size() + 7) / 8, '\0');
    for (uint32_t id = 0; id < vocabulary_->size(); ++id) {
      if (!allowed.mask || allowed.mask->holds(static_cast<TokenId>(id))) bits[id / 8] |= static_cast<char>(1 << id % 8);
    }
    out["mask"] = hex_of(bits);
    out["may_end"] = allowed.may_end;
    return out;
  }

 private:
  const std::shared_ptr<const TokenVocabulary> vocabulary_;
  std::unique_ptr<GrammarMatcher> matcher_;
  GrammarMatcher::Position at_;
};

int main_of(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: masks PATH\n");
    return 2;
  }
  const auto tokenizer = load_tokenizer(argv[1]);
  if (!tokenizer.ok()) {
    std::fprintf(stderr, "%s\n", std::string(tokenizer.status().message()).c_str());
    return 1;
  }
  const auto vocabulary = TokenVocabulary::of(**tokenizer);
  Json tokens = Json::array();
  for (uint32_t i = 0; i < vocabulary->size(); ++i) {
    const auto id = static_cast<TokenId>(i);
    tokens.push_back(vocabulary->is_control(id) ? std::string() : hex_of(vocabulary->bytes(id)));
  }
  std::cout << Json{{"tokens", std::move(tokens)}}.dump() << std::endl;
  Walk walk(vocabulary);
  for (std::string text; std::getline(std::cin, text);) {
    const auto line = parse_ordered_json(text);
    const auto answer = line.ok() ? walk.answer(*line) : StatusOr<Json>(line.status());
    std::cout << (answer.ok() ? *answer : Json{{"error", std::string(answer.status().message())}}).dump() << std::endl;
  }
  return 0;
}

}  // namespace
}  // namespace shoal

int main(int argc, char** argv) { return shoal::main_of(argc, argv); }
