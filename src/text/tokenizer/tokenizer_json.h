// tokenizer.json (and tokenizer_config.json) -> Tokenizer.
#pragma once

#include <memory>

#include "base/json.h"
#include "base/status.h"
#include "text/tokenizer/tokenizer.h"

namespace shoal {

// Ids are below this; the largest public vocabularies have a quarter of a million.
constexpr int64_t kTokenIdEnd = 1 << 22;
constexpr size_t kAddedTokenBytesMax = 1024;
constexpr size_t kTokenizerFileBytesMax = 256u << 20;

// `config` is tokenizer_config.json or null. InvalidArgument (malformed, contradictory) or Unimplemented (a component
// that is not known), naming the field and the cause; the caller adds the file's name.
StatusOr<std::unique_ptr<Tokenizer>> make_tokenizer(const Json& tokenizer, const Json& config);

// The same from the texts of the files, `config_text` being empty if there is none.
StatusOr<std::unique_ptr<Tokenizer>> parse_tokenizer(std::string_view tokenizer_text, std::string_view config_text);

}  // namespace shoal
