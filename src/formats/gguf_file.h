// A .gguf file or a set of them, opened.
#pragma once

#include <memory>
#include <string>

#include "base/status.h"
#include "formats/checkpoint.h"
#include "formats/gguf_config.h"

namespace shoal {

// Opens "x.gguf", or all parts of "x-00001-of-00003.gguf". Reads headers only.
StatusOr<std::shared_ptr<const Checkpoint>> open_gguf(const std::string& path);

// Only the tokenizer: works with vocabulary-only files of any architecture.
StatusOr<GgufTokenizer> open_gguf_tokenizer(const std::string& path);

// The bytes of a file that has the metadata of this one and no tensor: its text can be read, and nothing computed.
StatusOr<std::string> gguf_without_tensors(const std::string& path);

}  // namespace shoal
