// Every case of the shared tokenizers and vocabularies.
#include <cstring>
#include <sstream>

#include "text/tokenizer/detokenizer.h"
#include "text/tokenizer/gguf_vocab.h"
#include "text/tokenizer/test_support.h"

namespace shoal {
namespace {

namespace fs = std::filesystem;
using Ids = std::vector<TokenId>;

std::vector<fs::path> sorted_entries(const fs::path& folder) {
  std::vector<fs::path> entries;
  for (const auto& entry : fs::directory_iterator(folder)) entries.push_back(entry.path());
  std::sort(entries.begin(), entries.end());
  return entries;
}

std::string streamed(const Tokenizer& tokenizer, const Ids& ids, bool skip_special) {
  Detokenizer stream(tokenizer, skip_special);
  std::string text;
  for (const TokenId id : ids) text += stream.push(id);
  return text + stream.flush();
}

TEST(SharedDataTest, TokenizersEncodeAndDecodeAsTheReferenceLibrary) {
  if (!fs::exists(shared_data("tokenizers"))) GTEST_SKIP() << "shared data is not here";
  size_t cases = 0;
  for (const fs::path& folder : sorted_entries(shared_data("tokenizers"))) {
    auto tokenizer = load_hf_tokenizer(folder.string());
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
    const Tokenizer& t = **tokenizer;
    const Json expected = Json::parse(slurp(folder / "expected.json"));
    for (const Json& c : expected["cases"]) {
      const auto text = c["text"].get<std::string>();
      const auto ids = c["ids"].get<Ids>();
      EXPECT_EQ(t.encode(text, EncodeOptions{.add_special = false}), ids) << folder << " " << text;
      EXPECT_EQ(t.encode(text, EncodeOptions{}), c["ids_with_special"].get<Ids>()) << folder << " " << text;
      EXPECT_EQ(t.decode(ids, false), c["decoded"].get<std::string>()) << folder << " " << text;
      EXPECT_EQ(t.decode(ids, true), c["decoded_skip_special"].get<std::string>()) << folder << " " << text;
      EXPECT_EQ(streamed(t, ids, false), c["decoded"].get<std::string>()) << folder << " " << text;
      ++cases;
    }
  }
  EXPECT_GT(cases, 0u);
}

TEST(SharedDataTest, UntrustedPartsGiveTheIdsOfTheJoinedTextWithoutSpecialTokens) {
  if (!fs::exists(shared_data("tokenizers"))) GTEST_SKIP() << "shared data is not here";
  for (const fs::path& folder : sorted_entries(shared_data("tokenizers"))) {
    const auto t = *load_hf_tokenizer(folder.string());
    const Json expected = Json::parse(slurp(folder / "expected.json"));
    for (const Json& c : expected["cases"]) {
      const auto text = c["text"].get<std::string>();
      const bool has_special = c["decoded"] != c["decoded_skip_special"];
      for (size_t cut = 0; cut <= text.size() && text.size() < 100; ++cut) {
        if (cut < text.size() && (text[cut] & 0xC0) == 0x80) continue;
        const TextPart parts[] = {{text.substr(0, cut), false}, {text.substr(cut), true}};
        const Ids ids = t->encode(parts, EncodeOptions{.add_special = false});
        EXPECT_TRUE(has_special || ids == c["ids"].get<Ids>()) << folder << " " << text << " cut at " << cut;
      }
      const TextPart untrusted[] = {{text, false}};
      for (const TokenId id : t->encode(untrusted, EncodeOptions{.add_special = false})) {
        EXPECT_TRUE(t->token_text(id) == "<unk>" || !t->is_special(id)) << folder << " " << text;
      }
    }
  }
}

TEST(SharedDataTest, StreamsOfRandomIdsAreTheirDecoding) {
  if (!fs::exists(shared_data("tokenizers"))) GTEST_SKIP() << "shared data is not here";
  uint32_t state = 1;
  for (const fs::path& folder : sorted_entries(shared_data("tokenizers"))) {
    const auto t = *load_hf_tokenizer(folder.string());
    for (int round = 0; round < 300; ++round) {
      Ids ids;
      for (int i = 0; i < round % 40; ++i) ids.push_back(static_cast<TokenId>((state = state * 1664525u + 1013904223u) >> 8) % static_cast<TokenId>(t->vocab_size()));
      for (const bool skip : {false, true}) EXPECT_EQ(streamed(*t, ids, skip), t->decode(ids, skip)) << folder;
    }
  }
}

// Reads what the tests need of a GGUF file's metadata.
class GgufReader {
 public:
  explicit GgufReader(std::string bytes) : bytes_(std::move(bytes)) {}
  GgufVocab read() {
    at_ = 16;
    for (auto pairs = take<uint64_t>(); pairs > 0; --pairs) {
      const std::string key = take_string();
      value(key, take<uint32_t>());
    }
    return std::move(vocab_);
  }

 private:
  template <typename T>
  T take() {
    T v{};
    std::memcpy(&v, bytes_.data() + at_, sizeof(T));
    at_ += sizeof(T);
    return v;
  }
  std::string take_string() {
    const auto n = take<uint64_t>();
    at_ += n;
    return bytes_.substr(at_ - n, n);
  }
  void value(const std::string& key, uint32_t type) {
    static constexpr size_t kBytes[] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
    if (type == 8) return text(key, take_string());
    if (type != 9) {
      int64_t number = 0;
      std::memcpy(&number, bytes_.data() + at_, kBytes[type]);
      at_ += kBytes[type];
      return scalar(key, number);
    }
    const auto item = take<uint32_t>();
    for (auto n = take<uint64_t>(); n > 0; --n) {
      if (key == "tokenizer.ggml.tokens") {
        vocab_.tokens.push_back(take_string());
      } else if (key == "tokenizer.ggml.merges") {
        vocab_.merges.push_back(take_string());
      } else if (key == "tokenizer.ggml.scores") {
        vocab_.scores.push_back(take<float>());
      } else if (key == "tokenizer.ggml.token_type") {
        vocab_.token_types.push_back(take<int32_t>());
      } else {
        value("", item);
      }
    }
  }
  void text(const std::string& key, std::string value) {
    if (key == "tokenizer.ggml.model") vocab_.model = std::move(value);
    else if (key == "tokenizer.ggml.pre") vocab_.pre = std::move(value);
  }
  void scalar(const std::string& key, int64_t value) {
    if (key == "tokenizer.ggml.bos_token_id") vocab_.bos_token_id = value;
    else if (key == "tokenizer.ggml.eos_token_id") vocab_.eos_token_id = value;
    else if (key == "tokenizer.ggml.unknown_token_id") vocab_.unknown_token_id = value;
    else if (key == "tokenizer.ggml.add_bos_token") vocab_.add_bos_token = value != 0;
  }
  const std::string bytes_;
  size_t at_ = 0;
  GgufVocab vocab_;
};

TEST(SharedDataTest, GgufVocabulariesGiveTheExpectedIds) {
  if (!fs::exists(shared_data("vocab"))) GTEST_SKIP() << "shared data is not here";
  for (const fs::path& path : sorted_entries(shared_data("vocab"))) {
    if (path.extension() != ".gguf") continue;
    auto tokenizer = make_gguf_tokenizer(GgufReader(slurp(path)).read());
    ASSERT_TRUE(tokenizer.ok()) << path << tokenizer.status();
    std::istringstream expected(slurp(path.string() + ".out"));
    const std::string input = slurp(path.string() + ".inp"), separator = "\n__ggml_vocab_test__\n";
    for (size_t begin = 0; begin < input.size();) {
      const size_t end = std::min(input.find(separator, begin), input.size());
      std::string line;
      ASSERT_TRUE(std::getline(expected, line));
      std::istringstream numbers(line);
      const Ids want{std::istream_iterator<TokenId>(numbers), {}};
      const std::string text = input.substr(begin, end - begin);
      EXPECT_EQ((*tokenizer)->encode(text, EncodeOptions{.add_special = false}), want) << path << " " << text;
      EXPECT_EQ((*tokenizer)->decode(want, false), text) << path;
      EXPECT_EQ(streamed(**tokenizer, want, false), text) << path;
      begin = end + separator.size();
    }
  }
}

}  // namespace
}  // namespace shoal
