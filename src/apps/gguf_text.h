// Tokenizer and chat template from the metadata of a GGUF file.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "base/status.h"
#include "gateway/catalog.h"

namespace shoal {

struct GgufText {
  std::unique_ptr<Tokenizer> tokenizer;
  std::map<std::string, std::string> variables;  // bos_token, eos_token ... as the file's vocabulary spells them
  std::string chat_template;                     // empty if there is none
};

// The metadata of a large vocabulary takes long to read: once is enough.
StatusOr<GgufText> load_gguf_text(const std::string& path);

// Of a file without a vocabulary too; NotFound if there is none.
StatusOr<std::string> load_gguf_template_source(const std::string& path);

}  // namespace shoal
