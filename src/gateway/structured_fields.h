// What a client may say about the form of an answer, in the words of OpenAI (response_format), vLLM (guided_*,
// structured_outputs) and llama.cpp (grammar, json_schema); and its way to a grammar.
#pragma once

#include <functional>
#include <list>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "base/request.h"
#include "gateway/catalog.h"
#include "gateway/fields.h"

namespace shoal {

struct StructuredOutput {
  enum class Kind : uint8_t { kJsonObject, kSchema, kRegex, kChoice, kGbnf };
  Kind kind = Kind::kJsonObject;
  std::string param;                  // the field that asked for it
  std::string text;                   // schema as JSON, keys as the client ordered them; expression; GBNF
  std::vector<std::string> choices;
};

// Refuses more than one such field at a time, and forms that are not known.
void read_structured_output(Fields& fields, std::optional<StructuredOutput>& out);

// Grammars made from what clients asked for, the most recent ones kept: clients repeat their schemas. Any thread.
class GrammarCache {
 public:
  // 400 invalid_schema or invalid_grammar with the param of `wanted` if it cannot be followed by the model.
  ApiResult<GrammarRef> grammar(const StructuredOutput& wanted, const ModelEntry& model, const ModelText& text);
  // What `make` gives, which `key` must say all about; neither errors nor "no grammar" are kept.
  ApiResult<GrammarRef> grammar(std::string key, const std::function<ApiResult<GrammarRef>()>& make);

 private:
  static constexpr size_t kEntriesMax = 512;
  static constexpr size_t kBytesMax = 64u << 20;
  struct Entry {
    std::string key;
    GrammarRef grammar;
  };
  void remember(std::string key, const GrammarRef& grammar);

  std::mutex mutex_;
  std::list<Entry> recent_;           // the most recently used first; guarded by mutex_, as is the rest
  absl::flat_hash_map<std::string, std::list<Entry>::iterator> by_key_;
  size_t bytes_ = 0;
};

// The same without a cache.
ApiResult<GrammarRef> make_grammar(const StructuredOutput& wanted, const ModelText& text);

}  // namespace shoal
