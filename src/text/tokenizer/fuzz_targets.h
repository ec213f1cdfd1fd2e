// What the tokenizer fuzzers run, shared with unit tests that run it over every file of tests/corpus.
#pragma once

#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "nlohmann/json.hpp"
#include "text/tokenizer/detokenizer.h"
#include "text/tokenizer/tokenizer_json.h"
#include "text/tokenizer/unicode.h"

namespace shoal::fuzz {

// A tokenizer.json, a NUL, and a text: loads or is refused; a loaded one encodes and decodes the text, in one go and as
// a stream, and no text that a user wrote gives a special token other than the one for unknown symbols.
inline void tokenizer_json(std::string_view input) {
  const size_t nul = input.find('\0');
  const std::string_view file = input.substr(0, nul);
  const std::string_view text = nul == std::string_view::npos ? std::string_view("Hello, w\xC3\xB6rld 1") : input.substr(nul + 1);
  const auto tokenizer = parse_tokenizer(file, "");
  if (!tokenizer.ok()) return;
  const auto ids = (*tokenizer)->encode(text, EncodeOptions{});
  Detokenizer stream(**tokenizer, false);
  std::string streamed;
  for (const TokenId id : ids) streamed += stream.push(id);
  streamed += stream.flush();
  CHECK(streamed == (*tokenizer)->decode(ids, false));
  const TextPart untrusted[] = {{std::string(text), false}};
  (*tokenizer)->encode(untrusted, EncodeOptions{});
}

// Ids (two bytes each) into a fixed byte-fallback tokenizer: the stream is the decoding, well-formed at every push.
// The first byte also cuts the text for a StopMatcher, whose outcome must not depend on where.
inline void detokenizer(const Tokenizer& tokenizer, std::string_view input) {
  std::vector<TokenId> ids;
  for (size_t i = 0; i + 1 < input.size(); i += 2) {
    ids.push_back((static_cast<uint8_t>(input[i]) | static_cast<uint8_t>(input[i + 1]) << 8) % 300);
  }
  for (const bool skip : {false, true}) {
    Detokenizer stream(tokenizer, skip);
    std::string streamed;
    for (const TokenId id : ids) {
      const std::string piece = stream.push(id);
      CHECK(unicode::is_valid(piece));
      streamed += piece;
    }
    streamed += stream.flush();
    CHECK(streamed == tokenizer.decode(ids, skip));
  }
  const std::vector<std::string> stops = {"ab", "bca", "a a", "\n\n"};
  StopMatcher whole(stops), pieces(stops);
  auto all = whole.push(input);
  if (!all.stop) all.text += whole.flush();
  std::string shown;
  std::optional<std::string> stop;
  const size_t step = input.empty() ? 1 : static_cast<uint8_t>(input[0]) % 7 + 1;
  for (size_t at = 0; at < input.size() && !stop; at += step) {
    auto result = pieces.push(input.substr(at, step));
    shown += result.text;
    stop = result.stop;
  }
  if (!stop) shown += pieces.flush();
  CHECK(shown == all.text && stop == all.stop);
}

// 256 byte tokens, some words and control tokens; decoders as Llama 2 has them.
inline std::unique_ptr<Tokenizer> byte_fallback_tokenizer() {
  Json vocab = {{"<unk>", 0}, {"<s>", 1}, {"</s>", 2}};
  for (int b = 0; b < 256; ++b) {
    char name[8];
    std::snprintf(name, sizeof(name), "<0x%02X>", b);
    vocab[name] = 3 + b;
  }
  int id = 259;
  for (const char* word : {"\u2581", "a", "b", "c", "\u2581a", "ab", "\u2581ab", "\u00e9", "\U0001F642", "\n"}) vocab[word] = id++;
  Json file = Json::parse(R"({
    "added_tokens": [{"id": 1, "content": "<s>", "special": true}, {"id": 2, "content": "</s>", "special": true}],
    "normalizer": {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "\u2581"},
                   {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"}]},
    "decoder": {"type": "Sequence", "decoders": [{"type": "Replace", "pattern": {"String": "\u2581"}, "content": " "},
                {"type": "ByteFallback"}, {"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 1, "stop": 0}]},
    "model": {"type": "BPE", "unk_token": "<unk>", "fuse_unk": true, "byte_fallback": true,
              "merges": ["\u2581 a", "a b", "\u2581a b", "\u2581 ab"]}})");
  file["model"]["vocab"] = std::move(vocab);
  auto tokenizer = make_tokenizer(file, Json());
  CHECK(tokenizer.ok());
  return *std::move(tokenizer);
}

}  // namespace shoal::fuzz
