#include "apps/gguf_text.h"

#include "formats/gguf_file.h"
#include "text/tokenizer/gguf_vocab.h"

namespace shoal {
namespace {

// The file's own field names to those of the text layer; the token lists move.
GgufVocab vocab_of(GgufTokenizer&& file) {
  GgufVocab vocab;
  vocab.model = std::move(file.model);
  vocab.pre = std::move(file.pre);
  vocab.tokens = std::move(file.tokens);
  vocab.scores = std::move(file.scores);
  vocab.token_types = std::move(file.token_types);
  vocab.merges = std::move(file.merges);
  vocab.bos_token_id = file.bos;
  vocab.eos_token_id = file.eos;
  if (vocab.model == "bert" && !vocab.bos_token_id) vocab.bos_token_id = file.cls;
  if (vocab.model == "bert" && !vocab.eos_token_id) vocab.eos_token_id = file.separator;
  vocab.unknown_token_id = file.unknown;
  vocab.add_bos_token = file.add_bos;
  vocab.add_eos_token = file.add_eos;
  vocab.add_space_prefix = file.add_space_prefix;
  return vocab;
}

std::map<std::string, std::string> variables_of(const GgufTokenizer& file) {
  std::map<std::string, std::string> variables;
  const auto add = [&](const char* name, std::optional<TokenId> id) {
    if (id && *id >= 0 && static_cast<size_t>(*id) < file.tokens.size()) variables[name] = file.tokens[static_cast<size_t>(*id)];
  };
  add("bos_token", file.bos);
  add("eos_token", file.eos);
  add("unk_token", file.unknown);
  add("pad_token", file.padding);
  return variables;
}

}  // namespace

StatusOr<GgufText> load_gguf_text(const std::string& path) {
  ASSIGN_OR_RETURN(GgufTokenizer file, open_gguf_tokenizer(path));
  if (file.tokens.empty()) return not_found(path, ": has no tokenizer.ggml.tokens, so its text cannot be read");
  GgufText text{nullptr, variables_of(file), std::move(file.chat_template)};
  auto tokenizer = make_gguf_tokenizer(vocab_of(std::move(file)));
  if (!tokenizer.ok()) return annotate(tokenizer.status(), path);
  text.tokenizer = *std::move(tokenizer);
  return text;
}

StatusOr<std::string> load_gguf_template_source(const std::string& path) {
  ASSIGN_OR_RETURN(GgufTokenizer file, open_gguf_tokenizer(path));
  if (file.chat_template.empty()) return not_found(path, ": the model has no chat template");
  return std::move(file.chat_template);
}

}  // namespace shoal
