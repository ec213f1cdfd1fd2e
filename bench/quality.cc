// quality --model PATH [--reference PATH] [--text FILE] [--context N] [--threads N] [--json]: how well a model predicts a text,
// as it is stored, quantised at load, and with every type of KV cache.
//
//   loss        mean of -log p(token | tokens before it), nats per token, over the text in windows of N tokens (512)
//   perplexity  exp(loss), and its change against the first row: --reference (the unquantised model, say) or the model, f32 KV
//
// Without --text: the answers to the questions of PATH/reference_answers.json, which the bundled models have.
#include <cstdio>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "apps/model_text.h"
#include "base/bytes.h"
#include "base/json.h"
#include "formats/mapped_file.h"
#include "models/test_loss.h"
#include "nlohmann/json.hpp"

namespace shoal {
namespace {

constexpr uint64_t kTextBytesMax = 256u << 20;

struct Flags {
  std::string model, reference, text;
  uint32_t context = 512;
  int threads = 2;
  bool json = false;
};

struct Row {
  std::string name;
  Loss loss;
};

using Texts = std::vector<ScoredText>;

StatusOr<Texts> bundled_texts(const std::string& model) {
  ASSIGN_OR_RETURN(const std::string bytes, read_file(model + "/reference_answers.json", kTextBytesMax));
  ASSIGN_OR_RETURN(const Json reference, parse_json(bytes));
  Texts texts;
  for (const Json& c : reference["greedy"]) {
    ScoredText& text = texts.emplace_back();
    for (const Json& id : c["prompt_ids"]) text.tokens.push_back(id.get<TokenId>());
    text.from = std::max<size_t>(1, text.tokens.size());
    for (const Json& id : c["output_ids"]) text.tokens.push_back(id.get<TokenId>());
  }
  return texts;
}

// Windows of `context` tokens, each with the beginning of text that the tokenizer sets.
StatusOr<Texts> windows(const Flags& flags, uint32_t context) {
  ASSIGN_OR_RETURN(const std::string bytes, read_file(flags.text, kTextBytesMax));
  ASSIGN_OR_RETURN(const auto tokenizer, load_tokenizer(flags.model));
  const std::vector<TokenId> start = tokenizer->encode("", {.add_special = true, .parse_special = false});
  const std::vector<TokenId> all = tokenizer->encode(bytes, {.add_special = false, .parse_special = false});
  if (all.empty()) return invalid_argument(flags.text, " is empty");
  if (start.size() + 2 > context) return invalid_argument("--context ", context, " is too short");
  const size_t each = context - std::min<size_t>(start.size(), 1);
  Texts texts;
  for (size_t at = 0; at < all.size(); at += each) {
    std::vector<TokenId>& text = texts.emplace_back().tokens;
    if (!start.empty()) text.push_back(start.front());
    text.insert(text.end(), all.begin() + at, all.begin() + std::min(all.size(), at + each));
  }
  return texts;
}

class Quality {
 public:
  Quality(const Flags& flags, Texts texts) : flags_(flags), texts_(std::move(texts)) {}

  Status measure(std::shared_ptr<const Checkpoint> checkpoint, const std::string& name, const LoadOptions& options) {
    ASSIGN_OR_RETURN(const auto model, TestModel::open(std::move(checkpoint), options, flags_.threads));
    Loss loss;
    for (const auto& text : texts_) loss.add(loss_of(*model, text));
    rows_.push_back({name, loss});
    if (!flags_.json) print(rows_.back());
    return OkStatus();
  }

  const std::vector<Row>& rows() const { return rows_; }
  double change(const Row& row) const { return std::exp(row.loss.mean() - rows_.front().loss.mean()) - 1; }

 private:
  void print(const Row& row) const {
    std::printf("%-36s loss %.5f  perplexity %10.4f  %+8.3f %%\n", row.name.c_str(), row.loss.mean(), std::exp(row.loss.mean()), 100 * change(row));
    std::fflush(stdout);
  }

  const Flags& flags_;
  const Texts texts_;
  std::vector<Row> rows_;
};

bool is_quantized(const Checkpoint& checkpoint) {
  for (const auto& [name, view] : checkpoint.weights.all()) {
    if (is_block_type(view.dtype)) return true;
  }
  return false;
}

Status run(const Flags& flags) {
  ASSIGN_OR_RETURN(const auto checkpoint, open_checkpoint(flags.model));
  const uint32_t context = std::min(flags.context, checkpoint->config.context_length);
  ASSIGN_OR_RETURN(Texts texts, flags.text.empty() ? bundled_texts(flags.model) : windows(flags, context));
  Quality quality(flags, std::move(texts));
  if (!flags.reference.empty()) {
    ASSIGN_OR_RETURN(const auto reference, open_checkpoint(flags.reference));
    RETURN_IF_ERROR(quality.measure(reference, "reference, KV f32", {.kv_type = KvType::kF32}));
  }
  RETURN_IF_ERROR(quality.measure(checkpoint, "as stored, KV f32", {.kv_type = KvType::kF32}));
  RETURN_IF_ERROR(quality.measure(checkpoint, "as stored, KV f16", {.kv_type = KvType::kF16}));
  RETURN_IF_ERROR(quality.measure(checkpoint, "as stored, KV bf16", {.kv_type = KvType::kBF16}));
  RETURN_IF_ERROR(quality.measure(checkpoint, "as stored, KV q8_0", {.kv_type = KvType::kQ8_0}));
  if (!is_quantized(*checkpoint)) {
    for (auto [quantization, name] : {std::pair{Quantization::kQ8_0, "q8_0"}, std::pair{Quantization::kQ4_0, "q4_0"}}) {
      const std::string word = name;
      const DequantisedCheckpoint numbers(*checkpoint, quantization);
      RETURN_IF_ERROR(quality.measure(numbers.get(), word + " numbers in f32, KV f32", {.kv_type = KvType::kF32}));
      RETURN_IF_ERROR(quality.measure(checkpoint, word + " at load, KV f16", {.quantization = quantization, .kv_type = KvType::kF16}));
      RETURN_IF_ERROR(quality.measure(checkpoint, word + " at load, KV q8_0", {.quantization = quantization, .kv_type = KvType::kQ8_0}));
    }
  }
  if (!flags.json) {
    std::printf("%llu tokens\n", static_cast<unsigned long long>(quality.rows().front().loss.tokens));
    return OkStatus();
  }
  Json out = {{"model", flags.model}, {"tokens", quality.rows().front().loss.tokens}, {"rows", Json::array()}};
  for (const Row& row : quality.rows()) {
    out["rows"].push_back({{"name", row.name}, {"loss", row.loss.mean()}, {"perplexity", std::exp(row.loss.mean())}, {"perplexity_change", quality.change(row)}});
  }
  std::printf("%s\n", dump_json(out).c_str());
  return OkStatus();
}

}  // namespace
}  // namespace shoal

int main(int argc, char** argv) {
  shoal::Flags flags;
  CLI::App app("What a model loses by quantization");
  app.add_option("--model", flags.model, "FILE.gguf or FOLDER")->required()->check(CLI::ExistingPath);
  app.add_option("--reference", flags.reference, "The same with finer weights")->check(CLI::ExistingPath);
  app.add_option("--text", flags.text, "A text to read")->check(CLI::ExistingFile);
  app.add_option("--context", flags.context, "Tokens of a window")->check(CLI::Range(2u, 1u << 20));
  app.add_option("--threads", flags.threads, "Threads")->check(CLI::Range(1, 1024));
  app.add_flag("--json", flags.json, "Prints JSON");
  CLI11_PARSE(app, argc, argv);
  const shoal::Status status = shoal::run(flags);
  if (!status.ok()) std::fprintf(stderr, "quality: %s\n", std::string(status.message()).c_str());
  return status.ok() ? 0 : 1;
}
