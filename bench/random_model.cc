// random_model --shape NAME --type q8_0|q4_0|q4_k|q6_k|f16|bf16|f32 --out FILE.gguf [--seed N] [--layers N]
//
// A GGUF file of a well-known shape with seeded random weights and a made-up vocabulary, for measuring speed
// against other programs that read GGUF: the numbers mean nothing, the work is that of a real model. The same seed gives
// the same bytes. --list prints the shapes.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "base/rng.h"
#include "tensor/half.h"

namespace shoal {
namespace {

struct Shape {
  const char* architecture;
  uint32_t hidden, layers, heads, kv_heads, head_dim, mlp, vocab;
  bool tied, qkv_bias;
  float rope_base;
  struct Experts {
    uint32_t count = 0, used = 0, width = 0, shared = 0, dense_layers = 0;
  } experts = {};
  struct Latent {  // multi-head latent attention; head_dim is the part of a key without positions
    uint32_t rank = 0, rope = 0, value = 0, query = 0;
  } latent = {};
};

const std::map<std::string, Shape> kShapes = {
    {"llama-1.1b", {"llama", 2048, 22, 32, 4, 64, 5632, 32'000, false, false, 10'000.0f}},
    {"qwen2-0.5b", {"qwen2", 896, 24, 14, 2, 64, 4864, 151'936, true, true, 1'000'000.0f}},
    {"llama-0.1b", {"llama", 768, 12, 12, 4, 64, 2048, 32'000, true, false, 10'000.0f}},
    {"llama-0.3b", {"llama", 1024, 20, 16, 4, 64, 4096, 32'000, true, false, 10'000.0f}},
    {"qwen3-30b-a3b", {"qwen3moe", 2048, 48, 32, 4, 128, 6144, 32'000, true, false, 1'000'000.0f, {128, 8, 768, 0, 0}}},
    {"deepseek-v2-lite", {"deepseek2", 2048, 27, 16, 1, 128, 10'944, 32'000, true, false, 10'000.0f, {64, 6, 1408, 2, 1}, {512, 64, 128}}},
    {"deepseek-v2", {"deepseek2", 5120, 60, 128, 1, 128, 12'288, 32'000, true, false, 10'000.0f, {160, 6, 1536, 2, 1}, {512, 64, 128, 1536}}},
};

// Type numbers of the GGUF specification, with block size in elements and bytes.
struct Type {
  uint32_t number, elements, bytes;
};
const std::map<std::string, Type> kTypes = {
    {"f32", {0, 1, 4}}, {"f16", {1, 1, 2}}, {"q4_0", {2, 32, 18}}, {"q8_0", {8, 32, 34}}, {"bf16", {30, 1, 2}},
    {"q4_k", {12, 256, 144}}, {"q6_k", {14, 256, 210}}};

constexpr uint64_t kAlignment = 32;
constexpr uint32_t kStringType = 8, kArrayType = 9, kU32Type = 4, kF32Type = 6, kI32Type = 5, kBoolType = 7;

class Writer {
 public:
  explicit Writer(const std::string& path) : out_(path, std::ios::binary) {}
  template <typename T>
  void put(T value) { out_.write(reinterpret_cast<const char*>(&value), sizeof value); }
  // Of what was written before.
  uint64_t at() { return static_cast<uint64_t>(out_.tellp()); }
  void replace(uint64_t at, uint64_t value) {
    const auto end = out_.tellp();
    out_.seekp(static_cast<std::streamoff>(at));
    put(value);
    out_.seekp(end);
  }
  void text(const std::string& s) {
    put<uint64_t>(s.size());
    out_.write(s.data(), static_cast<std::streamsize>(s.size()));
  }
  void bytes(const std::vector<char>& b) { out_.write(b.data(), static_cast<std::streamsize>(b.size())); }
  void align() {
    while (static_cast<uint64_t>(out_.tellp()) % kAlignment != 0) out_.put('\0');
  }
  bool good() { return out_.flush().good(); }

 private:
  std::ofstream out_;
};

struct Tensor {
  std::string name;
  uint64_t columns, rows;  // rows 0: a vector
  std::string type;
  float fill;              // of vectors
  uint64_t slabs = 0;      // the rows are those of so many matrices; 0: of one
  uint64_t bytes() const { return (rows == 0 ? columns : rows * columns) / kTypes.at(type).elements * kTypes.at(type).bytes; }
};

// Adds matrices of a layer.
class LayerTensors {
 public:
  LayerTensors(const Shape& shape, const std::string& type, uint32_t layer, std::vector<Tensor>& out)
      : s_(shape), type_(type), at_("blk." + std::to_string(layer) + "."), out_(out) {}

  void matrix(const std::string& name, uint64_t rows, uint64_t columns) { out_.push_back({at_ + name + ".weight", columns, rows, type_, 0}); }
  void vector(const std::string& name, uint64_t size, float fill) { out_.push_back({at_ + name, size, 0, "f32", fill}); }
  // Rows shorter than a block of the type are of one with shorter blocks.
  void matrices(const std::string& name, uint64_t count, uint64_t rows, uint64_t columns) {
    const std::string type = columns % kTypes.at(type_).elements == 0 ? type_ : "q8_0";
    out_.push_back({at_ + name + ".weight", columns, count * rows, type, 0, count});
  }

  void heads() {
    const uint64_t q = uint64_t{s_.heads} * s_.head_dim, kv = uint64_t{s_.kv_heads} * s_.head_dim;
    matrix("attn_q", q, s_.hidden);
    matrix("attn_k", kv, s_.hidden);
    matrix("attn_v", kv, s_.hidden);
    if (s_.qkv_bias) {
      vector("attn_q.bias", q, 0.01f);
      vector("attn_k.bias", kv, 0.01f);
      vector("attn_v.bias", kv, 0.01f);
    }
    if (std::string(s_.architecture) == "qwen3moe") {
      vector("attn_q_norm.weight", s_.head_dim, 1);
      vector("attn_k_norm.weight", s_.head_dim, 1);
    }
    matrix("attn_output", s_.hidden, q);
  }
  void latent() {
    const uint64_t queries = uint64_t{s_.heads} * (s_.head_dim + s_.latent.rope);
    if (s_.latent.query > 0) {
      matrix("attn_q_a", s_.latent.query, s_.hidden);
      vector("attn_q_a_norm.weight", s_.latent.query, 1);
      matrix("attn_q_b", queries, s_.latent.query);
    } else {
      matrix("attn_q", queries, s_.hidden);
    }
    matrix("attn_kv_a_mqa", s_.latent.rank + s_.latent.rope, s_.hidden);
    vector("attn_kv_a_norm.weight", s_.latent.rank, 1);
    matrices("attn_k_b", s_.heads, s_.latent.rank, s_.head_dim);
    matrices("attn_v_b", s_.heads, s_.latent.value, s_.latent.rank);
    matrix("attn_output", s_.hidden, uint64_t{s_.heads} * s_.latent.value);
  }
  void mlp(const std::string& suffix, uint64_t width) {
    matrix("ffn_gate" + suffix, width, s_.hidden);
    matrix("ffn_up" + suffix, width, s_.hidden);
    matrix("ffn_down" + suffix, s_.hidden, width);
  }
  void experts() {
    const Shape::Experts& e = s_.experts;
    out_.push_back({at_ + "ffn_gate_inp.weight", s_.hidden, e.count, "f32", 0});
    matrices("ffn_gate_exps", e.count, e.width, s_.hidden);
    matrices("ffn_up_exps", e.count, e.width, s_.hidden);
    matrices("ffn_down_exps", e.count, s_.hidden, e.width);
    if (e.shared > 0) mlp("_shexp", uint64_t{e.shared} * e.width);
  }

 private:
  const Shape& s_;
  const std::string& type_;
  const std::string at_;
  std::vector<Tensor>& out_;
};

std::vector<Tensor> tensors_of(const Shape& s, const std::string& type) {
  std::vector<Tensor> out;
  const auto matrix = [&](const std::string& name, uint64_t rows, uint64_t columns) { out.push_back({name, columns, rows, type, 0}); };
  const auto vector = [&](const std::string& name, uint64_t size, float fill) { out.push_back({name, size, 0, "f32", fill}); };
  matrix("token_embd.weight", s.vocab, s.hidden);
  for (uint32_t l = 0; l < s.layers; ++l) {
    LayerTensors layer(s, type, l, out);
    layer.vector("attn_norm.weight", s.hidden, 1);
    s.latent.rank > 0 ? layer.latent() : layer.heads();
    layer.vector("ffn_norm.weight", s.hidden, 1);
    s.experts.count > 0 && l >= s.experts.dense_layers ? layer.experts() : layer.mlp("", s.mlp);
  }
  vector("output_norm.weight", s.hidden, 1);
  if (!s.tied) matrix("output.weight", s.vocab, s.hidden);
  return out;
}

// K-quants: scales and codes of any bits; d and dmin such that the numbers stay about within the range.
void random_super_blocks(Rng& rng, const Tensor& tensor, float range, char* out) {
  const uint32_t bytes = kTypes.at(tensor.type).bytes;
  const bool four = tensor.type == "q4_k";  // scale < 64 times code < 16 less min < 64; else scale < 128 times |code| <= 32
  const uint16_t d = f16_from_f32(range / (four ? 32.0f * 8 : 64.0f * 32)), dmin = f16_from_f32(range / 32);
  for (uint64_t block = 0; block < tensor.columns / 256; ++block, out += bytes) {
    for (uint32_t at = 0; at < bytes; ++at) out[at] = static_cast<char>(rng.bits());
    std::memcpy(four ? out : out + 208, &d, 2);
    if (four) std::memcpy(out + 2, &dmin, 2);
  }
}

// One row of weights uniform in [-a, a], a = sqrt(3 / columns): the outputs keep the variance of the inputs.
void random_row(Rng& rng, const Tensor& tensor, char* out) {
  const float range = std::sqrt(3.0f / static_cast<float>(tensor.columns));
  const auto uniform = [&] { return static_cast<float>(rng.uniform() * 2 - 1) * range; };
  if (tensor.type == "q8_0" || tensor.type == "q4_0") {
    const bool wide = tensor.type == "q8_0";
    const uint16_t scale = f16_from_f32(range / (wide ? 127.0f : 8.0f));
    for (uint64_t block = 0; block < tensor.columns / 32; ++block) {
      std::memcpy(out, &scale, 2);
      for (int i = 0; i < (wide ? 32 : 16); i += 8) {
        uint64_t codes = rng.bits();
        if (wide) codes &= 0xfefefefefefefefeull;  // -128 is no code
        std::memcpy(out + 2 + i, &codes, 8);
      }
      out += kTypes.at(tensor.type).bytes;
    }
    return;
  }
  if (tensor.type == "q4_k" || tensor.type == "q6_k") return random_super_blocks(rng, tensor, range, out);
  for (uint64_t i = 0; i < tensor.columns; ++i) {
    const float value = uniform();
    const uint16_t half = tensor.type == "f16" ? f16_from_f32(value) : bf16_from_f32(value);
    if (tensor.type == "f32") {
      std::memcpy(out + 4 * i, &value, 4);
    } else {
      std::memcpy(out + 2 * i, &half, 2);
    }
  }
}

void write_data(Writer& w, const Tensor& tensor, uint64_t seed) {
  w.align();
  if (tensor.rows == 0) {
    for (uint64_t i = 0; i < tensor.columns; ++i) w.put(tensor.fill);
    return;
  }
  Rng rng(seed);
  std::vector<char> row(tensor.bytes() / tensor.rows);
  for (uint64_t r = 0; r < tensor.rows; ++r) {
    random_row(rng, tensor, row.data());
    w.bytes(row);
  }
}

// Specials, the 256 bytes, then made-up words of letters.
std::string token_text(uint32_t id) {
  if (id < 3) return std::vector<std::string>{"<unk>", "<s>", "</s>"}[id];
  if (id < 259) {
    char byte[8];
    std::snprintf(byte, sizeof byte, "<0x%02X>", id - 3);
    return byte;
  }
  std::string word = id % 2 == 0 ? "\xe2\x96\x81" : "";  // U+2581 begins a word
  for (uint32_t left = id; left > 0; left /= 26) word += static_cast<char>('a' + left % 26);
  return word;
}

// Key-value pairs, counted.
class Metadata {
 public:
  explicit Metadata(Writer& out) : w_(out) {}
  uint64_t count() const { return count_; }

  void number(const std::string& key, uint32_t value) { begin(key, kU32Type), w_.put(value); }
  void real(const std::string& key, float value) { begin(key, kF32Type), w_.put(value); }
  void words(const std::string& key, const std::string& value) { begin(key, kStringType), w_.text(value); }
  void flag(const std::string& key, bool value) { begin(key, kBoolType), w_.put(static_cast<uint8_t>(value)); }
  // Of `size` elements, to be written next.
  void array(const std::string& key, uint32_t type, uint64_t size) { begin(key, kArrayType), w_.put(type), w_.put(size); }

 private:
  void begin(const std::string& key, uint32_t type) { ++count_, w_.text(key), w_.put(type); }

  Writer& w_;
  uint64_t count_ = 0;
};

void write_experts(Metadata& to, const Shape& s) {
  const std::string a = s.architecture;
  if (s.experts.count == 0) return;
  to.number(a + ".expert_count", s.experts.count);
  to.number(a + ".expert_used_count", s.experts.used);
  to.number(a + ".expert_feed_forward_length", s.experts.width);
  to.number(a + ".expert_shared_count", s.experts.shared);
  to.number(a + ".leading_dense_block_count", s.experts.dense_layers);
  to.real(a + ".expert_weights_scale", 1.0f);
  to.flag(a + ".expert_weights_norm", false);
  to.number(a + ".expert_gating_func", 1);  // softmax
}

void write_heads(Metadata& to, const Shape& s) {
  const std::string a = s.architecture;
  to.number(a + ".attention.head_count", s.heads);
  to.number(a + ".attention.head_count_kv", s.kv_heads);
  to.number(a + ".rope.dimension_count", s.latent.rank > 0 ? s.latent.rope : s.head_dim);
  if (s.latent.rank > 0) {
    if (s.latent.query > 0) to.number(a + ".attention.q_lora_rank", s.latent.query);
    to.number(a + ".attention.kv_lora_rank", s.latent.rank);
    to.number(a + ".attention.key_length", s.latent.rank + s.latent.rope);
    to.number(a + ".attention.value_length", s.latent.rank);
    to.number(a + ".attention.key_length_mla", s.head_dim + s.latent.rope);
    to.number(a + ".attention.value_length_mla", s.latent.value);
  } else if (s.hidden / s.heads != s.head_dim) {
    to.number(a + ".attention.key_length", s.head_dim);
    to.number(a + ".attention.value_length", s.head_dim);
  }
}

void write_tokens(Writer& w, Metadata& to, uint32_t vocab) {
  to.words("tokenizer.ggml.model", "llama");
  to.array("tokenizer.ggml.tokens", kStringType, vocab);
  for (uint32_t i = 0; i < vocab; ++i) w.text(token_text(i));
  to.array("tokenizer.ggml.scores", kF32Type, vocab);
  for (uint32_t i = 0; i < vocab; ++i) w.put(-static_cast<float>(i));
  to.array("tokenizer.ggml.token_type", kI32Type, vocab);
  for (uint32_t i = 0; i < vocab; ++i) w.put<int32_t>(i == 0 ? 2 : i < 3 ? 3 : i < 259 ? 6 : 1);
  to.number("tokenizer.ggml.bos_token_id", 1);
  to.number("tokenizer.ggml.eos_token_id", 2);
  to.flag("tokenizer.ggml.add_bos_token", true);
}

// Returns how many entries there are.
uint64_t write_metadata(Writer& w, const std::string& name, const Shape& s) {
  const std::string a = s.architecture;
  Metadata to(w);
  to.words("general.architecture", a);
  to.words("general.name", "random " + name);
  to.number(a + ".context_length", 4096);
  to.number(a + ".embedding_length", s.hidden);
  to.number(a + ".block_count", s.layers);
  to.number(a + ".feed_forward_length", s.mlp);
  write_heads(to, s);
  write_experts(to, s);
  to.number(a + ".vocab_size", s.vocab);
  to.real(a + ".attention.layer_norm_rms_epsilon", 1e-5f);
  to.real(a + ".rope.freq_base", s.rope_base);
  write_tokens(w, to, s.vocab);
  return to.count();
}

int write_model(const std::string& name, const Shape& shape, const std::string& type, const std::string& path, uint64_t seed) {
  const std::vector<Tensor> tensors = tensors_of(shape, type);
  Writer w(path);
  w.put(0x46554747u);  // "GGUF"
  w.put(3u);
  w.put<uint64_t>(tensors.size());
  const uint64_t count_at = w.at();
  w.put<uint64_t>(0);
  w.replace(count_at, write_metadata(w, name, shape));
  uint64_t offset = 0;
  for (const Tensor& tensor : tensors) {
    w.text(tensor.name);
    w.put<uint32_t>(tensor.rows == 0 ? 1 : tensor.slabs == 0 ? 2 : 3);
    w.put(tensor.columns);
    if (tensor.rows != 0) w.put(tensor.rows / std::max<uint64_t>(tensor.slabs, 1));
    if (tensor.slabs != 0) w.put(tensor.slabs);
    w.put(kTypes.at(tensor.type).number);
    w.put(offset);
    offset += (tensor.bytes() + kAlignment - 1) / kAlignment * kAlignment;
  }
  for (size_t i = 0; i < tensors.size(); ++i) write_data(w, tensors[i], mix64(seed + i));
  if (!w.good()) {
    std::fprintf(stderr, "random_model: cannot write %s\n", path.c_str());
    return 1;
  }
  std::printf("%s: %s %s, %.0f MB\n", path.c_str(), name.c_str(), type.c_str(), static_cast<double>(offset) / 1e6);
  return 0;
}

int usage() {
  std::fprintf(stderr, "usage: random_model --shape NAME --type q8_0|q4_0|q4_k|q6_k|f16|bf16|f32 --out FILE.gguf [--seed N] [--layers N]\n"
                       "       random_model --list\n");
  return 2;
}

int run(int argc, char** argv) {
  std::map<std::string, std::string> flags = {{"--type", "q8_0"}, {"--seed", "1"}};
  if (argc == 2 && std::string(argv[1]) == "--list") {
    for (const auto& [name, s] : kShapes) std::printf("%-12s %s, %u layers, hidden %u, vocabulary %u\n", name.c_str(), s.architecture, s.layers, s.hidden, s.vocab);
    return 0;
  }
  for (int i = 1; i + 1 < argc; i += 2) flags[argv[i]] = argv[i + 1];
  if (argc % 2 == 0 || !kShapes.contains(flags["--shape"]) || !kTypes.contains(flags["--type"]) || flags["--out"].empty()) return usage();
  Shape shape = kShapes.at(flags["--shape"]);
  if (flags.contains("--layers")) shape.layers = static_cast<uint32_t>(std::strtoul(flags["--layers"].c_str(), nullptr, 10));
  return write_model(flags["--shape"], shape, flags["--type"], flags["--out"], std::strtoull(flags["--seed"].c_str(), nullptr, 10));
}

}  // namespace
}  // namespace shoal

int main(int argc, char** argv) { return shoal::run(argc, argv); }
