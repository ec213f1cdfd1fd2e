// shoal tokenize: text to ids and back, for people who look inside and for tests.
#include <cstdio>
#include <memory>
#include <string>

#include "CLI/CLI.hpp"
#include "apps/json_lines.h"
#include "apps/model_scan.h"
#include "apps/model_text.h"
#include "apps/terminal.h"
#include "apps/verbs.h"
#include "nlohmann/json.hpp"

namespace shoal {
namespace {

constexpr size_t kTextBytesMax = 256u << 20;

struct TokenizeFlags {
  std::string model;
  std::string models_dir = "models";
  std::string text;
  bool no_special = false;
  bool decode = false;
  bool jsonl = false;
};

Json encode_row(const Tokenizer& tokenizer, const std::string& text, bool add_special) {
  const std::vector<TokenId> ids = tokenizer.encode(text, {.add_special = add_special, .parse_special = true});
  Json tokens = Json::array();
  for (const TokenId id : ids) tokens.push_back(tokenizer.token_text(id));
  return {{"ids", ids}, {"tokens", std::move(tokens)}, {"decoded", tokenizer.decode(ids, /*skip_special=*/false)}};
}

StatusOr<Json> encode_line(const Tokenizer& tokenizer, const OrderedJson& line, bool add_special) {
  if (!line.contains("text") || !line["text"].is_string()) return invalid_argument("the line has no 'text'");
  return encode_row(tokenizer, line["text"].get<std::string>(), add_special);
}

StatusOr<Json> decode_line(const Tokenizer& tokenizer, const OrderedJson& line) {
  if (!line.contains("ids") || !line["ids"].is_array()) return invalid_argument("the line has no list 'ids'");
  std::vector<TokenId> ids;
  for (const OrderedJson& id : line["ids"]) {
    if (!id.is_number_integer()) return invalid_argument("'ids' holds something that is not an integer");
    ids.push_back(id.get<TokenId>());
  }
  return Json{{"text", tokenizer.decode(ids, /*skip_special=*/false)}};
}

// Ids written with anything between them: "1 2 3", "[1, 2, 3]".
std::vector<TokenId> ids_in(const std::string& text) {
  std::vector<TokenId> ids;
  for (size_t i = 0; i < text.size();) {
    if (text[i] < '0' || text[i] > '9') {
      ++i;
      continue;
    }
    int64_t id = 0;
    for (; i < text.size() && text[i] >= '0' && text[i] <= '9'; ++i) id = std::min<int64_t>(id * 10 + (text[i] - '0'), INT32_MAX);
    ids.push_back(static_cast<TokenId>(id));
  }
  return ids;
}

int tokenize(const TokenizeFlags& flags) {
  const auto path = model_path(flags.model, flags.models_dir);
  if (!path.ok()) return fail(std::string(path.status().message()));
  const auto tokenizer = load_tokenizer(*path);
  if (!tokenizer.ok()) return fail(std::string(tokenizer.status().message()));
  if (flags.jsonl) {
    return each_json_line([&](const OrderedJson& line) {
      return flags.decode ? decode_line(**tokenizer, line) : encode_line(**tokenizer, line, !flags.no_special);
    });
  }
  const std::string text = flags.text.empty() ? read_all_stdin(kTextBytesMax) : flags.text;
  if (flags.decode) {
    show_text((*tokenizer)->decode(ids_in(text), /*skip_special=*/false) + "\n");
    return kExitOk;
  }
  const Json row = encode_row(**tokenizer, text, !flags.no_special);
  for (size_t i = 0; i < row["ids"].size(); ++i) {
    std::printf("%8d  %s\n", row["ids"][i].get<int>(), dump_json(row["tokens"][i]).c_str());
  }
  return kExitOk;
}

}  // namespace

RunVerb add_tokenize(CLI::App& app) {
  CLI::App* verb = app.add_subcommand("tokenize", "Text to token ids and back");
  auto flags = std::make_shared<TokenizeFlags>();
  auto words = std::make_shared<std::pair<std::string, std::string>>();
  auto* model = verb->add_option("--model", flags->model, "The model, instead of the first word");
  verb->add_option("model", words->first, "Model folder (a tokenizer.json is enough), GGUF file, or name of a model in --models-dir");
  verb->add_option("text", words->second, "The text, or the ids with --decode; stdin if it is left out");
  verb->add_option("--models-dir", flags->models_dir, "Where names are looked up")->capture_default_str();
  verb->add_flag("--no-special", flags->no_special, "Add no special tokens around the text");
  verb->add_flag("--decode", flags->decode, "Ids to text");
  verb->add_flag("--jsonl", flags->jsonl, "Lines {\"text\"} in, lines {\"ids\",\"tokens\",\"decoded\"} out (--decode: {\"ids\"} to {\"text\"})");
  verb->footer("Examples:\n  shoal tokenize models/tiny-llama \"Hello world\"\n  shoal tokenize model.gguf --decode \"1 15 27\"\n"
               "  shoal tokenize models/tiny-llama --jsonl < texts.jsonl");
  return [flags, words, model] {
    const bool named = model->count() > 0;
    flags->text = named ? words->first : words->second;
    if (!named) flags->model = words->first;
    if (flags->model.empty() || (named && !words->second.empty())) {
      fail(named ? "there is a text too much: '" + words->second + "'; put one of several words in quotes" : "name a model: shoal tokenize MODEL [TEXT]");
      return kExitUsage;
    }
    return tokenize(*flags);
  };
}

}  // namespace shoal
