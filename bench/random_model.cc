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
#include "bench/random_shapes.h"
#include "tensor/half.h"

namespace shoal {
namespace {

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
    while (out_.good() && static_cast<uint64_t>(out_.tellp()) % kAlignment != 0) out_.put('\0');
  }
  bool good() { return out_.flush().good(); }

 private:
  std::ofstream out_;
};

// K-quants: scales and codes of any bits; d and dmin such that the numbers stay about within the range.
void random_super_blocks(Rng& rng, const RandomTensor& tensor, float range, char* out) {
  const uint32_t bytes = random_types().at(tensor.type).bytes;
  const bool four = tensor.type == "q4_k";  // scale < 64 times code < 16 less min < 64; else scale < 128 times |code| <= 32
  const uint16_t d = f16_from_f32(range / (four ? 32.0f * 8 : 64.0f * 32)), dmin = f16_from_f32(range / 32);
  for (uint64_t block = 0; block < tensor.columns() / 256; ++block, out += bytes) {
    for (uint32_t at = 0; at < bytes; ++at) out[at] = static_cast<char>(rng.bits());
    std::memcpy(four ? out : out + 208, &d, 2);
    if (four) std::memcpy(out + 2, &dmin, 2);
  }
}

// One row of weights uniform in [-a, a], a = sqrt(3 / columns): the outputs keep the variance of the inputs.
void random_row(Rng& rng, const RandomTensor& tensor, char* out) {
  const float range = std::sqrt(3.0f / static_cast<float>(tensor.columns()));
  const auto uniform = [&] { return static_cast<float>(rng.uniform() * 2 - 1) * range; };
  if (tensor.type == "q8_0" || tensor.type == "q4_0") {
    const bool wide = tensor.type == "q8_0";
    const uint16_t scale = f16_from_f32(range / (wide ? 127.0f : 8.0f));
    for (uint64_t block = 0; block < tensor.columns() / 32; ++block) {
      std::memcpy(out, &scale, 2);
      for (int i = 0; i < (wide ? 32 : 16); i += 8) {
        uint64_t codes = rng.bits();
        if (wide) codes &= 0xfefefefefefefefeull;  // -128 is no code
        std::memcpy(out + 2 + i, &codes, 8);
      }
      out += random_types().at(tensor.type).bytes;
    }
    return;
  }
  if (tensor.type == "q4_k" || tensor.type == "q6_k") return random_super_blocks(rng, tensor, range, out);
  for (uint64_t i = 0; i < tensor.columns(); ++i) {
    const float value = uniform();
    const uint16_t half = tensor.type == "f16" ? f16_from_f32(value) : bf16_from_f32(value);
    if (tensor.type == "f32") {
      std::memcpy(out + 4 * i, &value, 4);
    } else {
      std::memcpy(out + 2 * i, &half, 2);
    }
  }
}

void write_data(Writer& w, const RandomTensor& tensor, uint64_t seed) {
  w.align();
  if (tensor.fill) {
    for (uint64_t i = 0; i < tensor.columns() * tensor.rows(); ++i) w.put(*tensor.fill);
    return;
  }
  Rng rng(seed);
  std::vector<char> row(tensor.row_bytes());
  for (uint64_t r = 0; r < tensor.rows(); ++r) {
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

void write_experts(Metadata& to, const RandomShape& s) {
  const std::string a = s.architecture;
  if (s.experts.count == 0) return;
  to.number(a + ".expert_count", s.experts.count);
  to.number(a + ".expert_used_count", s.experts.used);
  to.number(a + ".expert_feed_forward_length", s.experts.width);
  if (s.recurrent.taps > 0) return to.number(a + ".expert_shared_feed_forward_length", s.experts.shared * s.experts.width);
  to.number(a + ".expert_shared_count", s.experts.shared);
  to.number(a + ".leading_dense_block_count", s.experts.dense_layers);
  to.real(a + ".expert_weights_scale", 1.0f);
  to.flag(a + ".expert_weights_norm", false);
  to.number(a + ".expert_gating_func", 1);  // softmax
}

void write_heads(Metadata& to, const RandomShape& s) {
  const std::string a = s.architecture;
  to.number(a + ".attention.head_count", s.heads);
  if (s.recurrent.taps == 0) {
    to.number(a + ".attention.head_count_kv", s.kv_heads);
    to.number(a + ".rope.dimension_count", s.latent.rank > 0 ? s.latent.rope : s.head_dim);
  }
  if (s.latent.rank > 0) {
    if (s.latent.query > 0) to.number(a + ".attention.q_lora_rank", s.latent.query);
    to.number(a + ".attention.kv_lora_rank", s.latent.rank);
    to.number(a + ".attention.key_length", s.latent.rank + s.latent.rope);
    to.number(a + ".attention.value_length", s.latent.rank);
    to.number(a + ".attention.key_length_mla", s.head_dim + s.latent.rope);
    to.number(a + ".attention.value_length_mla", s.latent.value);
  } else if (s.hidden / s.heads != s.head_dim || s.recurrent.taps > 0) {
    to.number(a + ".attention.key_length", s.head_dim);
    to.number(a + ".attention.value_length", s.head_dim);
  }
}

// A number per layer: `value` for those of one kind, 0 for the others.
void write_by_layer(Writer& w, Metadata& to, const std::string& key, const RandomShape& s, uint32_t value, RandomLayer kind) {
  to.array(key, kI32Type, s.layers);
  for (uint32_t l = 0; l < s.layers; ++l) w.put(random_layer(s, l) == kind ? value : 0);
}

// Sizes of a state, and which layers keep one.
void write_recurrent(Writer& w, Metadata& to, const RandomShape& s) {
  const RandomShape::Recurrent& r = s.recurrent;
  const std::string a = s.architecture;
  if (r.taps == 0) return;
  if (delta_nets(s)) {
    to.number(a + ".attention.head_count_kv", s.kv_heads);
    to.number(a + ".full_attention_interval", 4);
    to.number(a + ".rope.dimension_count", s.head_dim / 4);
    if (a != "qwen3next") {
      to.array(a + ".rope.dimension_sections", kI32Type, 4);
      for (const uint32_t section : {11u, 11u, 10u, 0u}) w.put(section);
    }
  } else if (a == "falcon-h1") {
    to.number(a + ".attention.head_count_kv", s.kv_heads);
  } else {
    write_by_layer(w, to, a + ".attention.head_count_kv", s, s.kv_heads, RandomLayer::kAttention);
    to.number(a + ".rope.dimension_count", s.head_dim);
  }
  if (r.inner == 0) return to.number(a + ".shortconv.l_cache", r.taps);
  to.number(a + ".ssm.conv_kernel", r.taps);
  to.number(a + ".ssm.inner_size", r.inner);
  to.number(a + ".ssm.state_size", r.state);
  to.number(a + ".ssm.time_step_rank", r.heads);
  to.number(a + ".ssm.group_count", r.groups);
}

// What only some families say.
void write_family(Metadata& to, const RandomShape& s) {
  const std::string a = s.architecture;
  if (a == "nemotron_h") to.real(a + ".attention.layer_norm_epsilon", 1e-5f);
  if (a == "nemotron_h" || a == "granitehybrid") to.flag(a + ".rope.scaling.finetuned", false);
  if (a != "granitehybrid") return;
  to.real(a + ".attention.scale", 1.0f / static_cast<float>(s.head_dim));
  to.real(a + ".embedding_scale", 12.0f);
  to.real(a + ".residual_scale", 0.22f);
  to.real(a + ".logit_scale", 6.0f);
  if (s.experts.count == 0) to.number(a + ".expert_shared_feed_forward_length", s.mlp);
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
uint64_t write_metadata(Writer& w, const std::string& name, const RandomShape& s) {
  const std::string a = s.architecture;
  Metadata to(w);
  to.words("general.architecture", a);
  to.words("general.name", "random " + name);
  to.number(a + ".context_length", s.recurrent.taps > 0 ? 32'768 : 4096);
  to.number(a + ".embedding_length", s.hidden);
  to.number(a + ".block_count", s.layers);
  if (single_blocks(s)) {
    write_by_layer(w, to, a + ".feed_forward_length", s, s.mlp, RandomLayer::kMlp);
  } else {
    to.number(a + ".feed_forward_length", s.mlp);
  }
  write_heads(to, s);
  write_experts(to, s);
  write_recurrent(w, to, s);
  write_family(to, s);
  to.number(a + ".vocab_size", s.vocab);
  to.real(a + ".attention.layer_norm_rms_epsilon", 1e-5f);
  to.real(a + ".rope.freq_base", s.rope_base);
  write_tokens(w, to, s.vocab);
  return to.count();
}

int write_model(const std::string& name, const RandomShape& shape, const std::string& type, const std::string& path, uint64_t seed) {
  const std::vector<RandomTensor> tensors = random_tensors(shape, type);
  const auto cannot_write = [&path] {
    std::fprintf(stderr, "random_model: cannot write %s: is there such a folder, and room for it?\n", path.c_str());
    return 1;
  };
  Writer w(path);
  if (!w.good()) return cannot_write();
  w.put(0x46554747u);  // "GGUF"
  w.put(3u);
  w.put<uint64_t>(tensors.size());
  const uint64_t count_at = w.at();
  w.put<uint64_t>(0);
  w.replace(count_at, write_metadata(w, name, shape));
  uint64_t offset = 0;
  for (const RandomTensor& tensor : tensors) {
    w.text(tensor.name);
    w.put(static_cast<uint32_t>(tensor.dims.size()));
    for (const uint64_t dim : tensor.dims) w.put(dim);
    w.put(random_types().at(tensor.type).number);
    w.put(offset);
    offset += (tensor.rows() * tensor.row_bytes() + kAlignment - 1) / kAlignment * kAlignment;
  }
  for (size_t i = 0; i < tensors.size() && w.good(); ++i) write_data(w, tensors[i], mix64(seed + i));
  if (!w.good()) return cannot_write();
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
    for (const auto& [name, s] : random_shapes()) std::printf("%-20s %s, %u layers, hidden %u, vocabulary %u\n", name.c_str(), s.architecture, s.layers, s.hidden, s.vocab);
    return 0;
  }
  for (int i = 1; i + 1 < argc; i += 2) flags[argv[i]] = argv[i + 1];
  if (argc % 2 == 0 || !random_shapes().contains(flags["--shape"]) || !random_types().contains(flags["--type"]) || flags["--out"].empty()) return usage();
  RandomShape shape = random_shapes().at(flags["--shape"]);
  if (flags.contains("--layers")) shape.layers = static_cast<uint32_t>(std::strtoul(flags["--layers"].c_str(), nullptr, 10));
  return write_model(flags["--shape"], shape, flags["--type"], flags["--out"], std::strtoull(flags["--seed"].c_str(), nullptr, 10));
}

}  // namespace
}  // namespace shoal

int main(int argc, char** argv) { return shoal::run(argc, argv); }
