// GGUF metadata -> what a model is, how its tensors are called elsewhere, and its tokenizer.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/status.h"
#include "formats/gguf.h"
#include "formats/model_config.h"

namespace shoal {

// The tokenizer.ggml.* fields as they stand in the file; the text layer knows what they mean.
struct GgufTokenizer {
  std::string model;  // "gpt2" (byte-level BPE), "llama" (SentencePiece), "bert" ...
  std::string pre;    // name of the pre-tokenizer's rules
  std::vector<std::string> tokens;
  std::vector<float> scores;         // [tokens] or empty
  std::vector<int32_t> token_types;  // [tokens] or empty; 1 normal, 2 unknown, 3 control, 4 user, 5 unused, 6 byte
  std::vector<std::string> merges;
  std::optional<TokenId> bos, eos, eot, eom, unknown, separator, padding, mask, cls;
  std::optional<bool> add_bos, add_eos, add_separator, add_space_prefix;
  std::string chat_template;                          // empty if none
  std::map<std::string, std::string> chat_templates;  // further ones by name, "tool_use" ...
};

// InvalidArgument naming the key. A file without tokenizer fields gives an empty one (tokens.empty()).
StatusOr<GgufTokenizer> read_gguf_tokenizer(const GgufMetadata& metadata);

// The architecture that `general.architecture` names; Unimplemented, with that name, if it is not served.
StatusOr<Architecture> gguf_architecture(const GgufMetadata& metadata);

// `has_tensor` tells which optional tensors there are (names as stored).
struct GgufTensorNames {
  bool output = false, rope_freqs = false, rope_factors = false;
  bool qkv_bias = false, output_bias = false, mlp_bias = false;
  uint64_t vocab_rows = 0;  // of token_embd
  uint32_t position_rows = 0, type_rows = 0;  // of encoders' further embeddings
  std::set<uint32_t> routers;  // layers that have one
};
// Long and short factors of longrope are tensors; the caller fills them in.
StatusOr<ModelConfig> parse_gguf_config(const GgufMetadata& metadata, const GgufTensorNames& names);

// End-of-text ids: eos, eot, eom and the control tokens that are known to end a turn.
GenerationConfig gguf_generation(const GgufTokenizer& tokenizer);

}  // namespace shoal
