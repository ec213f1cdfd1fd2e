// The regular expressions behind the names of tokenizer.ggml.pre, each as its model's publisher wrote it.
#include <algorithm>

#include "text/tokenizer/byte_level.h"
#include "text/tokenizer/gguf_vocab.h"

namespace shoal {
namespace {

#define CONTRACTIONS "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define TAIL "\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define UPPER "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define LOWER "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"

constexpr const char* kLlama3 =
    CONTRACTIONS "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|" TAIL;
constexpr const char* kQwen2 =
    CONTRACTIONS "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|" TAIL;
constexpr const char* kSeedCoder =
    CONTRACTIONS "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}\\r\\n]+|" TAIL;
constexpr const char* kQwen35 =
    CONTRACTIONS "|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}| ?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|" TAIL;
constexpr const char* kGpt4o =
    "[^\\r\\n\\p{L}\\p{N}]?" UPPER "*" LOWER "+" CONTRACTIONS "?|[^\\r\\n\\p{L}\\p{N}]?" UPPER "+" LOWER "*" CONTRACTIONS
    "?|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|" TAIL;
constexpr const char* kTekken =
    "[^\\r\\n\\p{L}\\p{N}]?" UPPER "*" LOWER "+|[^\\r\\n\\p{L}\\p{N}]?" UPPER "+" LOWER
    "*|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|" TAIL;
constexpr const char* kKimiK2 =
    "\\p{Han}+|[^\\r\\n\\p{L}\\p{N}]?(?:(?!\\p{Han})" UPPER ")*(?:(?!\\p{Han})" LOWER ")+" CONTRACTIONS
    "?|[^\\r\\n\\p{L}\\p{N}]?(?:(?!\\p{Han})" UPPER ")+(?:(?!\\p{Han})" LOWER ")*" CONTRACTIONS
    "?|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|" TAIL;
constexpr const char* kDeepSeekV3Words =
    "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\\r\\n]*|" TAIL;
// Cased letters as DeepSeek-LLM lists them.
constexpr const char* kDeepSeekLlmWords =
    "\\s?[A-Za-z\\x{B5}\\x{C0}-\\x{D6}\\x{D8}-\\x{F6}\\x{F8}-\\x{1BA}\\x{1BC}-\\x{1BF}\\x{1C4}-\\x{293}\\x{295}-\\x{2AF}"
    "\\x{370}-\\x{373}\\x{376}-\\x{377}\\x{37B}-\\x{37D}\\x{37F}\\x{386}\\x{388}-\\x{38A}\\x{38C}\\x{38E}-\\x{3A1}"
    "\\x{3A3}-\\x{3F5}\\x{3F7}-\\x{481}\\x{48A}-\\x{52F}\\x{531}-\\x{556}\\x{10A0}-\\x{10C5}\\x{13A0}-\\x{13F5}"
    "\\x{13F8}-\\x{13FD}\\x{1C90}-\\x{1CBA}\\x{1CBD}-\\x{1CBF}\\x{1D00}-\\x{1D2B}\\x{1D6B}-\\x{1D77}"
    "\\x{1D79}-\\x{1D9A}\\x{1E00}-\\x{1F15}\\x{1F18}-\\x{1F1D}\\x{1F20}-\\x{1F45}\\x{1F48}-\\x{1F4D}"
    "\\x{1F50}-\\x{1F57}\\x{1F59}\\x{1F5B}\\x{1F5D}\\x{1F5F}-\\x{1F7D}\\x{1F80}-\\x{1FB4}\\x{1FB6}-\\x{1FBC}\\x{1FBE}"
    "\\x{1FC2}-\\x{1FC4}\\x{1FC6}-\\x{1FCC}\\x{1FD0}-\\x{1FD3}\\x{1FD6}-\\x{1FDB}\\x{1FE0}-\\x{1FEC}"
    "\\x{1FF2}-\\x{1FF4}\\x{1FF6}-\\x{1FFC}\\x{2102}\\x{2107}\\x{210A}-\\x{2113}\\x{2115}\\x{2119}-\\x{211D}\\x{2124}"
    "\\x{2126}\\x{2128}\\x{212A}-\\x{212D}\\x{212F}-\\x{2134}\\x{2139}\\x{213C}-\\x{213F}\\x{2145}-\\x{2149}\\x{214E}"
    "\\x{2183}-\\x{2184}\\x{2C00}-\\x{2C7B}\\x{2C7E}-\\x{2CE4}\\x{2CEB}-\\x{2CEE}\\x{2CF2}-\\x{2CF3}"
    "\\x{A640}-\\x{A66D}\\x{A680}-\\x{A69B}\\x{A722}-\\x{A76F}\\x{A771}-\\x{A787}\\x{A78B}-\\x{A78E}"
    "\\x{AB70}-\\x{ABBF}\\x{FB00}-\\x{FB06}\\x{FB13}-\\x{FB17}\\x{FF21}-\\x{FF3A}\\x{FF41}-\\x{FF5A}"
    "\\x{10400}-\\x{1044F}\\x{104B0}-\\x{104D3}\\x{104D8}-\\x{104FB}\\x{10C80}-\\x{10CB2}\\x{10CC0}-\\x{10CF2}"
    "\\x{118A0}-\\x{118DF}\\x{1E900}-\\x{1E943}]+";
constexpr const char* kDeepSeekPunctuation =
    "\\s?[!-/:-~\\x{FF01}-\\x{FF0F}\\x{FF1A}-\\x{FF5E}\\x{2018}-\\x{201F}\\x{3000}-\\x{3002}]+";
constexpr const char* kDeepSeekCjk = "[\\x{4E00}-\\x{9FA5}\\x{800}-\\x{4E00}\\x{AC00}-\\x{D7FF}]+";
constexpr const char* kBloom = " ?[^(\\s|.,!?…。，、।۔،)]+";

#undef CONTRACTIONS
#undef TAIL
#undef UPPER
#undef LOWER

struct Row {
  std::vector<std::string_view> names;
  GgufPre pre;
};

const std::vector<Row>& table() {
  const char* const gpt2 = byte_level::kGpt2Regex;
  static const std::vector<Row> rows = {
      {{"llama3", "llama-v3", "llama-bpe", "falcon3", "pixtral", "midm-2.0", "lfm2"}, {{kLlama3}, true, true}},
      {{"dbrx", "smaug-bpe", "glm4", "chatglm-bpe"}, {{kLlama3}, false, false}},
      {{"qwen2", "deepseek-r1-qwen", "stablelm2", "megrez", "hunyuan"}, {{kQwen2}, false, false}},
      {{"seed-coder"}, {{kSeedCoder}, false, false}},
      {{"qwen35"}, {{kQwen35}, false, false}},
      {{"gpt-4o", "llama4"}, {{kGpt4o}, false, false}},
      {{"tekken"}, {{kTekken}, true, true}},
      {{"kimi-k2"}, {{kKimiK2}, false, false}},
      {{"deepseek-v3", "hunyuan-dense"}, {{"\\p{N}{1,3}", "[\\x{4E00}-\\x{9FA5}\\x{3040}-\\x{309F}\\x{30A0}-\\x{30FF}]+", kDeepSeekV3Words}, false, false}},
      {{"deepseek-llm"},
       {{"[\\r\\n]", kDeepSeekLlmWords, kDeepSeekPunctuation, "\\s+$", kDeepSeekCjk, "\\p{N}+"}, false, false}},
      {{"deepseek-coder"}, {{"[\\r\\n]", "\\s?\\p{L}+", "\\s?\\p{P}+", kDeepSeekCjk, "\\p{N}"}, false, false}},
      {{"gpt-2", "phi-2", "mpt", "olmo", "jais", "trillion", "granite-docling", "jina-es", "jina-de", "jina-v2-es", "jina-v2-de",
        "a.x-4.0", "mellum", "exaone4", "roberta-bpe", "modern-bert"},
       {{gpt2}, false, false}},
      {{"starcoder", "refact", "command-r", "smollm", "codeshell", "exaone", "minerva-7b"}, {{"\\p{N}", gpt2}, false, false}},
      {{"falcon"}, {{"[\\p{P}\\$\\+<=>\\^~\\|`]+", gpt2, "[0-9][0-9][0-9]"}, false, false}},
      {{"bloom", "poro-chat", "gpt3-finnish"}, {{kBloom}, false, false}},
      {{"viking"}, {{kBloom, "\\p{N}"}, false, false}},
      {{"default", ""}, {{"[\\p{P}\\$\\+<=>\\^~\\|]+", gpt2, "\\p{N}+", "[0-9][0-9][0-9]"}, false, false}},
  };
  return rows;
}

// deepseek3-llm and deepseek-v3 name the same thing, depending on who wrote the file.
std::string_view canonical(std::string_view name) { return name == "deepseek3-llm" ? "deepseek-v3" : name; }

}  // namespace

StatusOr<GgufPre> find_gguf_pre(std::string_view name) {
  for (const Row& row : table()) {
    if (std::find(row.names.begin(), row.names.end(), canonical(name)) != row.names.end()) return row.pre;
  }
  return unimplemented("tokenizer.ggml.pre '", std::string(name), "' is not known; its regular expression has to be added");
}

}  // namespace shoal
