// The models this gateway offers: their names, their limits, and on demand their tokenizers and chat templates.
#pragma once

#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "base/status.h"
#include "text/answers/call_syntax.h"
#include "text/answers/tool_prompt.h"
#include "text/chat_template.h"
#include "text/token_vocabulary.h"
#include "text/tokenizer.h"

namespace shoal {

// What generation_config.json says where a request is silent.
struct GenerationDefaults {
  std::optional<float> temperature;
  std::optional<float> top_p;
  std::optional<float> min_p;
  std::optional<uint32_t> top_k;
  std::optional<float> repetition_penalty;
  std::optional<uint32_t> max_new_tokens;
};

struct ModelEntry {
  ModelId id;
  std::string name;                  // what clients call it; may contain '/'
  std::vector<std::string> aliases;
  std::string architecture;
  uint32_t max_model_len = 0;        // prompt and answer together, in tokens
  uint32_t trained_len = 0;          // what the model itself allows, before flags and memory shorten it
  uint32_t vocab_size = 0;           // ids below it are valid prompts
  std::vector<TokenId> eos_ids;
  GenerationDefaults defaults;
  std::string tool_call_parser = "auto";  // names of text/answers/call_syntax.h
  std::string reasoning_parser = "auto";
  uint64_t parameter_count = 0;
  uint64_t weight_bytes = 0;
  int64_t created_unix_seconds = 0;
};

// Everything of a model that deals in text. Immutable, shared between threads.
struct ModelText {
  std::unique_ptr<const Tokenizer> tokenizer;
  std::unique_ptr<const ChatTemplate> chat_template;     // null: the model has none
  std::string chat_template_problem;                     // why it is null, if there is a reason to tell
  TemplateTraits traits;
  std::unique_ptr<const ChatTemplate> tool_template;     // for chats with tools, where the model has one of its own
  TemplateTraits tool_traits;
  AnswerFormat format;                                   // what its answers are written in
  std::map<std::string, std::string> template_variables; // bos_token, eos_token ...
  std::optional<TokenId> eos_id;                         // the tokenizer's own, beside those of ModelEntry
  bool knows_developer_role = false;                     // else "developer" is rendered as "system"
  LazyVocabulary vocabulary;                             // of the tokenizer, for grammars
};

class Catalog {
 public:
  using TextLoader = std::function<StatusOr<std::shared_ptr<const ModelText>>(const ModelEntry&)>;

  // Keeps at most texts_max loaded texts (at least one); requests in flight keep theirs alive beyond that.
  // REQUIRES: names and aliases are distinct.
  Catalog(std::vector<ModelEntry> models, TextLoader loader, size_t texts_max);

  const std::vector<ModelEntry>& models() const { return models_; }
  const ModelEntry* find(std::string_view name_or_alias) const;

  // Loads on first use; of several callers at once for one model one loads and the others wait. Any thread.
  StatusOr<std::shared_ptr<const ModelText>> text(const ModelEntry& model);

 private:
  struct Slot {
    std::mutex loading;
    std::shared_ptr<const ModelText> text;  // guarded by mutex_
  };

  const std::vector<ModelEntry> models_;
  const TextLoader loader_;
  const size_t texts_max_;
  std::map<std::string, size_t, std::less<>> by_name_;
  std::vector<std::unique_ptr<Slot>> slots_;  // as models_
  std::mutex mutex_;
  std::list<size_t> recent_;                  // loaded models, the most recently used first; guarded by mutex_
};

}  // namespace shoal
