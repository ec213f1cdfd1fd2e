// shoal show PATH: what a model is, what it needs, and with --check whether every byte of it can be used.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdio>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/strings/str_format.h"
#include "apps/model_scan.h"
#include "apps/model_text.h"
#include "apps/settings.h"
#include "apps/table.h"
#include "apps/terminal.h"
#include "apps/verbs.h"
#include "base/bytes.h"
#include "device/cpu_device.h"
#include "device/thread_pool.h"
#include "formats/checkpoint.h"
#include "kernels/quant_codes.h"
#include "memory/prefix_index.h"
#include "models/backend.h"
#include "models/model.h"
#include "nlohmann/json.hpp"

namespace shoal {
namespace {

constexpr size_t kValueColumn = 17;

struct Shown {
  std::shared_ptr<const Checkpoint> checkpoint;
  std::unique_ptr<ModelPlan> plan;
  uint32_t tokenizer_vocab = 0;
  std::string tokenizer_problem;
  std::string chat_template;  // "yes", "none", or what is wrong with it
};

StatusOr<Shown> open_model(const std::string& path, const LoadOptions& options) {
  Shown shown;
  ASSIGN_OR_RETURN(shown.checkpoint, open_checkpoint(path));
  ASSIGN_OR_RETURN(shown.plan, plan_model(shown.checkpoint, options));
  const auto text = load_model_text(path);
  if (!text.ok()) {
    shown.tokenizer_problem = std::string(text.status().message());
    shown.chat_template = "none";
    return shown;
  }
  shown.tokenizer_vocab = (*text)->tokenizer->vocab_size();
  shown.chat_template = (*text)->chat_template != nullptr ? "yes" : "none";
  if (!(*text)->chat_template_problem.empty()) shown.chat_template = (*text)->chat_template_problem;
  return shown;
}

// The first number of the tensor that is none, as an error. Tensors of other types than weights hold no numbers to check.
Status check_numbers(const std::string& name, const TensorView& view) {
  if (!is_weight_type(view.dtype) || view.bytes == 0) return OkStatus();
  const size_t columns = view.shape.rank() == 0 ? 1 : view.shape[view.shape.rank() - 1];
  std::vector<float> row(columns);
  for (uint64_t r = 0; r < view.rows(); ++r) {
    dequantize_row(view.dtype, view.data + r * view.row_bytes(), 0, columns, row.data());
    for (size_t c = 0; c < columns; ++c) {
      if (std::isfinite(row[c])) continue;
      return data_loss("tensor '", name, "' holds ", row[c], " at row ", r, ", column ", c,
                       "; the file is damaged or its type overflowed, fetch or convert it again");
    }
  }
  return OkStatus();
}

// Reads every byte: each number of each tensor, then the whole load into memory.
Status check_model(const Shown& shown) {
  if (!shown.tokenizer_problem.empty()) return invalid_argument(shown.tokenizer_problem);
  const std::map<std::string, TensorView> ordered(shown.checkpoint->weights.all().begin(), shown.checkpoint->weights.all().end());
  for (const auto& [name, view] : ordered) RETURN_IF_ERROR(check_numbers(name, view));
  ThreadPool threads(static_cast<int>(std::max(1u, std::thread::hardware_concurrency())));
  ASSIGN_OR_RETURN(const std::unique_ptr<CpuDevice> device, CpuDevice::make(1));
  ASSIGN_OR_RETURN(const DeviceSpan memory, device->allocate(shown.plan->weight_bytes()));
  const std::unique_ptr<Backend> backend = make_cpu_backend(*device, threads);
  LoadControl control;
  return shown.plan->load(memory, *backend, threads, control).status();
}

std::map<std::string, uint64_t> bytes_by_type(const Checkpoint& checkpoint) {
  std::map<std::string, uint64_t> types;
  for (const auto& [name, view] : checkpoint.weights.all()) types[dtype_name(view.dtype)] += view.bytes;
  return types;
}

Json experts_json(const ModelConfig& c) {
  if (!c.experts) return nullptr;
  return {{"count", c.experts->count}, {"used", c.experts->used}, {"shared", c.experts->shared_intermediate_size > 0},
          {"layers", std::count(c.experts->layers.begin(), c.experts->layers.end(), true)}};
}

Json pooled_json(const ModelConfig& c) {
  if (!c.pooled) return nullptr;
  return {{"pooling", pooling_name(c.pooled->pooling)}, {"normalize", c.pooled->normalize}, {"labels", c.pooled->labels}, {"both_directions", c.encoder.has_value()}};
}

Json to_json(const std::string& path, const Shown& shown, bool checked) {
  const ModelConfig& c = shown.checkpoint->config;
  Json types = Json::object();
  for (const auto& [name, bytes] : bytes_by_type(*shown.checkpoint)) types[name] = bytes;
  const uint64_t context = shown.plan->context_length() - (c.pooled ? 1 : 0);  // of pooled models nothing is generated
  const uint64_t kv_full = div_up(context, kTokensPerBlock) * shown.plan->kv_block_bytes();
  return {{"path", path}, {"format", shown.checkpoint->format}, {"architecture", architecture_name(c.architecture)},
          {"parameters", shown.plan->parameter_count()}, {"layers", c.layers}, {"hidden_size", c.hidden_size},
          {"heads", c.heads}, {"kv_heads", c.kv_heads}, {"head_dim", c.head_dim}, {"experts", experts_json(c)}, {"vocab_size", c.vocab_size},
          {"tokenizer_vocab_size", shown.tokenizer_vocab}, {"context", context}, {"pooled", pooled_json(c)},
          {"disk_bytes", shown.checkpoint->weights.bytes()}, {"types", types},
          {"weight_bytes", shown.plan->weight_bytes()}, {"least_weight_bytes", shown.plan->least_weight_bytes()},
          {"kv_bytes_per_token", shown.plan->kv_block_bytes() / kTokensPerBlock}, {"state_bytes_per_sequence", shown.plan->state_bytes()},
          {"kv_bytes_full_context", kv_full}, {"tokenizer_problem", shown.tokenizer_problem},
          {"chat_template", shown.chat_template}, {"checked", checked}};
}

void print_text(const Json& j) {
  const auto row = [](const char* name, const std::string& value) {
    for (const std::string& line : wrap_text(absl::StrFormat("%-16s %s", name, value), stdout_columns(), kValueColumn)) show_text(line + "\n");
  };
  const auto number = [&](const char* key) { return std::to_string(j[key].get<uint64_t>()); };
  const auto size = [&](const char* key) { return format_bytes(j[key].get<uint64_t>()); };
  row("path", j["path"]);
  row("architecture", j["architecture"].get<std::string>() + ", " + number("layers") + " layers, hidden " + number("hidden_size") +
                          ", heads " + number("heads") + "/" + number("kv_heads") + " x " + number("head_dim"));
  row("parameters", absl::StrCat(j["parameters"].get<uint64_t>() / 1000 / 1000.0, " M"));
  if (!j["experts"].is_null()) {
    const Json& e = j["experts"];
    row("experts", absl::StrCat(e["used"].get<uint64_t>(), " of ", e["count"].get<uint64_t>(), " for each token, in ", e["layers"].get<uint64_t>(), " layers",
                                e["shared"].get<bool>() ? ", and one for all" : ""));
  }
  if (const Json& p = j["pooled"]; !p.is_null()) {
    const uint64_t labels = p["labels"].get<uint64_t>();
    row("makes", absl::StrCat(labels > 0 ? absl::StrCat(labels, labels == 1 ? " score" : " scores") : absl::StrCat("vectors of ", number("hidden_size")), " of the ",
                              p["pooling"].get<std::string>(), p["normalize"].get<bool>() ? ", at length 1" : "",
                              p["both_directions"].get<bool>() ? "; attention in both directions" : ""));
  }
  row("vocabulary", number("vocab_size") + " (tokenizer " + number("tokenizer_vocab_size") + ")");
  row("context", number("context") + " tokens");
  std::string types = j["format"];
  for (const auto& [name, bytes] : j["types"].items()) types += ", " + name + " " + format_bytes(bytes.get<uint64_t>());
  row("stored", types);
  const bool less = j["least_weight_bytes"] < j["weight_bytes"];
  row("weights", size("weight_bytes") + " in memory" + (less ? ", or " + size("least_weight_bytes") + " and more with a part of the experts" : ""));
  row("KV", size("kv_bytes_per_token") + " per token, " + size("kv_bytes_full_context") + " for a full context");
  if (j["state_bytes_per_sequence"] > 0) row("state", size("state_bytes_per_sequence") + " per sequence, whatever its length");
  row("chat template", j["chat_template"]);
  if (!j["tokenizer_problem"].get<std::string>().empty()) row("tokenizer", j["tokenizer_problem"]);
  if (j["checked"].get<bool>()) row("check", "every byte read, every number sound");
}

}  // namespace

RunVerb add_show(CLI::App& app) {
  CLI::App* verb = app.add_subcommand("show", "Show what a model is and what it needs");
  struct Flags {
    std::string path, models_dir = "models";
    EngineFlags engine;
    bool check = false, json = false;
  };
  auto flags = std::make_shared<Flags>();
  verb->add_option("path", flags->path, "Model folder, GGUF file, or name of a model in --models-dir")->required();
  verb->add_option("--models-dir", flags->models_dir, "Where names are looked up")->capture_default_str();
  verb->add_flag("--check", flags->check, "Read every byte; exit 1 and one reason if the model cannot be used");
  verb->add_flag("--json", flags->json, "Print a JSON object");
  verb->add_option("--quantization", flags->engine.quantization, "Show it as loaded with none, q8_0 or q4_0");
  verb->add_option("--kv-cache-dtype", flags->engine.kv_cache_dtype, "auto, f32, f16, bf16 or q8_0");
  verb->footer("Examples:\n  shoal show models/tiny-llama\n  shoal show model.gguf --check --json");
  return [flags] {
    const auto options = load_options(flags->engine);
    if (!options.ok()) return fail(std::string(options.status().message()));
    const auto path = model_path(flags->path, flags->models_dir);
    if (!path.ok()) return fail(std::string(path.status().message()));
    const auto shown = open_model(*path, *options);
    if (!shown.ok()) return fail(std::string(shown.status().message()));
    if (flags->check) {
      if (const Status status = check_model(*shown); !status.ok()) return fail(std::string(annotate(status, *path).message()));
    }
    const Json json = to_json(*path, *shown, flags->check);
    if (flags->json) {
      std::printf("%s\n", dump_json(json, 2).c_str());
    } else {
      print_text(json);
    }
    return kExitOk;
  };
}

}  // namespace shoal
