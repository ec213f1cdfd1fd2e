// Small tokenizers for the tests of this folder, where the shared data lies, and its files.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>

#include "nlohmann/json.hpp"
#include "text/tokenizer/tokenizer_json.h"

namespace shoal {

inline std::filesystem::path shared_data(const char* folder) { return std::filesystem::path(SHOAL_SHARED_DIR) / "data" / folder; }

inline std::string slurp(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}

// A file of three words' worth of byte-level BPE, to be changed by a test before it is loaded.
inline Json small_bpe() {
  return Json::parse(R"({
    "added_tokens": [{"id": 20, "content": "<s>", "special": true}, {"id": 21, "content": "<|im_end|>", "special": true},
                     {"id": 22, "content": "<think>", "special": false, "normalized": false}],
    "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "use_regex": true},
    "post_processor": {"type": "TemplateProcessing",
      "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
      "special_tokens": {"<s>": {"id": "<s>", "ids": [20], "tokens": ["<s>"]}}},
    "decoder": {"type": "ByteLevel"},
    "model": {"type": "BPE",
      "vocab": {"a": 0, "b": 1, "c": 2, "Ġ": 3, "<": 4, ">": 5, "|": 6, "i": 7, "m": 8, "_": 9, "e": 10, "n": 11, "d": 12,
                "ab": 13, "abc": 14, "Ġa": 15, "Ġab": 16, "s": 17, "bc": 18, "<|": 19},
      "merges": ["a b", "Ġ a", "ab c", "Ġ ab", "b c", "< |"]}})");
}

inline std::unique_ptr<Tokenizer> load(const Json& file, const Json& config = Json()) {
  auto tokenizer = make_tokenizer(file, config);
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status();
  return tokenizer.ok() ? *std::move(tokenizer) : nullptr;
}

inline std::string refusal(const Json& file, const Json& config = Json()) {
  const auto tokenizer = make_tokenizer(file, config);
  return tokenizer.ok() ? "accepted" : std::string(tokenizer.status().message());
}

}  // namespace shoal
