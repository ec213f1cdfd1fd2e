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
#include "policy/slo.h"
#include "text/answers/call_syntax.h"
#include "text/answers/tool_prompt.h"
#include "text/jinja/chat_template.h"
#include "text/tokenizer/token_vocabulary.h"
#include "text/tokenizer/tokenizer.h"

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

// How two texts are put together for a model that judges them.
enum class PairForm : uint8_t { kOneMark, kTwoMarks, kJoined };

// A model of which vectors or scores are wanted, and no text.
struct PooledEntry {
  uint32_t width = 0;        // of its vectors
  uint32_t labels = 0;       // scores of a text; 0: vectors are wanted
  bool normalize = false;    // vectors are brought to the length 1
  PairForm pairs = PairForm::kOneMark;
};

struct ModelEntry {
  ModelId id;
  std::string name;                  // what clients call it; may contain '/'
  std::string path;                  // folder or file; empty: not on this machine
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
  SloTarget slo;                     // what its readers may expect
  std::optional<PooledEntry> pooled; // none: it generates text
};
// An entry never changes; what replaces it is another one.
using ModelRef = std::shared_ptr<const ModelEntry>;

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
  std::string tokenizer_info = "{}";                     // JSON of GET /tokenizer_info
  std::optional<TokenId> eos_id;                         // the tokenizer's own, beside those of ModelEntry
  bool knows_developer_role = false;                     // else "developer" is rendered as "system"
  LazyVocabulary vocabulary;                             // of the tokenizer, for grammars
};

// Any thread may call anything.
class Catalog {
 public:
  using TextLoader = std::function<StatusOr<std::shared_ptr<const ModelText>>(const ModelEntry&)>;

  // Keeps at most texts_max loaded texts (at least one); requests in flight keep theirs alive beyond that.
  // REQUIRES: ids are distinct, and so are names and aliases.
  Catalog(std::vector<ModelEntry> models, TextLoader loader, size_t texts_max);

  std::vector<ModelRef> models() const;                    // as given
  ModelRef find(std::string_view name_or_alias) const;     // null if there is none
  ModelRef find(ModelId id) const;

  // Offers these from now on. Who has an entry keeps it; a text stays with its id. REQUIRES: as above.
  void replace(std::vector<ModelEntry> models);

  // Loads on first use; of several callers at once for one model one loads and the others wait.
  StatusOr<std::shared_ptr<const ModelText>> text(const ModelEntry& model);

 private:
  struct View {
    std::vector<ModelRef> models;
    std::map<std::string, ModelRef, std::less<>> by_name;
    std::map<ModelId, ModelRef> by_id;
  };
  struct Slot {
    std::mutex loading;
    std::shared_ptr<const ModelText> text;  // guarded by mutex_
  };
  static std::shared_ptr<const View> view_of(std::vector<ModelEntry> models);
  std::shared_ptr<const View> view() const;
  std::shared_ptr<Slot> slot(ModelId id);

  const TextLoader loader_;
  const size_t texts_max_;
  mutable std::mutex mutex_;
  std::shared_ptr<const View> view_;                  // guarded by mutex_, as are the next two
  std::map<ModelId, std::shared_ptr<Slot>> slots_;
  std::list<ModelId> recent_;                         // loaded models, the most recently used first
};

}  // namespace shoal
