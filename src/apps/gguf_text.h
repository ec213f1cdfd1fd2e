// Tokenizer and chat template from the metadata of a GGUF file.
#pragma once

#include <memory>
#include <string>

#include "base/status.h"
#include "gateway/catalog.h"

namespace shoal {

StatusOr<std::unique_ptr<Tokenizer>> load_gguf_tokenizer(const std::string& path);
StatusOr<std::string> load_gguf_template_source(const std::string& path);  // NotFound if there is none

// bos_token, eos_token ... as the file's vocabulary spells them.
StatusOr<std::map<std::string, std::string>> load_gguf_template_variables(const std::string& path);

}  // namespace shoal
