// Tokenizer and chat template of a model on disk.
#pragma once

#include <memory>
#include <string>

#include "base/status.h"
#include "gateway/catalog.h"

namespace shoal {

// `path`: an HF folder or a GGUF file. A chat template that does not parse is reported in the result; the model then
// serves completions only.
// InvalidArgument for parsers that are not known; see choose_format().
StatusOr<std::shared_ptr<const ModelText>> load_model_text(const std::string& path, const std::string& tool_call_parser = "auto",
                                                           const std::string& reasoning_parser = "auto");

// The tokenizer alone; for a folder that holds only a tokenizer.json and for vocabulary-only GGUF files as well.
StatusOr<std::unique_ptr<Tokenizer>> load_tokenizer(const std::string& path);

// The chat template's source; NotFound if the model has none.
StatusOr<std::string> load_chat_template_source(const std::string& path);

}  // namespace shoal
