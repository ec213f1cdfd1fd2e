// Tokenizers from the metadata of GGUF files. The file is parsed elsewhere; this is what it said.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "text/tokenizer/tokenizer.h"

namespace shoal {

// Values of tokenizer.ggml.token_type.
enum class GgufTokenType : int32_t { kNormal = 1, kUnknown = 2, kControl = 3, kUserDefined = 4, kUnused = 5, kByte = 6 };

// The keys below tokenizer.ggml of the same names.
struct GgufVocab {
  std::string model;                    // "gpt2": byte-level BPE, "llama": SentencePiece BPE by scores, "t5": unigram, "bert": WordPiece
  std::string pre;                      // how "gpt2" text is cut into pieces
  std::vector<std::string> tokens;      // by id
  std::vector<float> scores;            // by id; "llama" and "t5" need them
  std::vector<int32_t> token_types;     // by id; empty: all normal
  std::vector<std::string> merges;      // "a b"; "gpt2" needs them
  std::optional<int64_t> bos_token_id, eos_token_id, unknown_token_id;
  std::optional<bool> add_bos_token, add_eos_token, add_space_prefix, remove_extra_whitespaces;
  std::string precompiled_charsmap;     // of "t5"
};

// InvalidArgument for contradictory metadata, Unimplemented for a model or a pre-tokenizer that is not known, each
// naming the key; the caller adds the file's name.
StatusOr<std::unique_ptr<Tokenizer>> make_gguf_tokenizer(const GgufVocab& vocab);

// What is known under a name of tokenizer.ggml.pre.
struct GgufPre {
  std::vector<const char*> expressions;  // each cuts the pieces of the one before
  bool ignore_merges = false;            // a piece that is a token as a whole is that token
  bool add_bos = false;                  // where the file does not say
};
StatusOr<GgufPre> find_gguf_pre(std::string_view name);

}  // namespace shoal
