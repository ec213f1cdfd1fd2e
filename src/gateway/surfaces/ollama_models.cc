#include "gateway/surfaces/ollama_models.h"

#include "absl/strings/str_format.h"
#include "absl/strings/escaping.h"
#include "gateway/model_totals.h"
#include "gateway/openai_body.h"
#include "gateway/strings.h"
#include "gateway/surfaces/ollama_answer.h"
#include "gateway/surfaces/ollama_request.h"
#include "nlohmann/json.hpp"

namespace shoal {
namespace {

// Clients ask whether an interface is there by the version of Ollama that brought it: this is the one whose requests are served.
constexpr char kSpokenVersion[] = "0.13.0";
constexpr std::string_view kLatest = ":latest";

std::string parameter_size(uint64_t count) {
  return count >= 1'000'000'000 ? absl::StrFormat("%.1fB", static_cast<double>(count) / 1e9) : absl::StrFormat("%.1fM", static_cast<double>(count) / 1e6);
}

// "Q4_K_M" of "model-Q4_K_M.gguf"; empty if the name does not say.
std::string quantization(const std::string& path) {
  const size_t end = path.ends_with(".gguf") ? path.size() - 5 : std::string::npos;
  if (end == std::string::npos) return "";
  size_t begin = end;
  while (begin > 0 && (absl::ascii_isalnum(static_cast<unsigned char>(path[begin - 1])) || path[begin - 1] == '_')) --begin;
  const std::string word = path.substr(begin, end - begin);
  const bool known = word.starts_with("Q") || word.starts_with("IQ") || word.starts_with("F16") || word.starts_with("BF16") || word.starts_with("F32") || word.starts_with("MXFP4");
  return known ? word : "";
}

Json details(const ModelEntry& model) {
  return {{"parent_model", ""}, {"format", model.path.ends_with(".gguf") ? "gguf" : "safetensors"}, {"family", model.architecture},
          {"families", Json::array({model.architecture})}, {"parameter_size", parameter_size(model.parameter_count)},
          {"quantization_level", quantization(model.path)}};
}

// Tells models apart, as clients use it; it is no hash of a blob.
std::string digest(const ModelEntry& model) {
  const KeyDigest hash = key_digest(absl::StrCat(model.name, "\n", model.weight_bytes, "\n", model.created_unix_seconds));
  return absl::BytesToHexString(absl::string_view(reinterpret_cast<const char*>(hash.data()), hash.size()));
}

Json entry(const ModelEntry& model) {
  return {{"name", model.name}, {"model", model.name}, {"size", model.weight_bytes}, {"digest", digest(model)}, {"details", details(model)}};
}

ApiResult<ModelRef> find(const std::string& name, const ModelAccess& models, Caller caller) {
  auto model = models.find(name, caller);
  return model.ok() ? model : models.find(without_latest(name), caller);
}

std::string parameters_text(const GenerationDefaults& defaults) {
  std::string out;
  const auto line = [&](const char* name, const auto& value) {
    if (value) absl::StrAppend(&out, name, " ", *value, "\n");
  };
  line("temperature", defaults.temperature);
  line("top_p", defaults.top_p);
  line("top_k", defaults.top_k);
  line("min_p", defaults.min_p);
  line("repeat_penalty", defaults.repetition_penalty);
  return out;
}

HttpReply refused(int status, std::string message) {
  return error_reply({.http_status = status, .message = std::move(message), .param = std::nullopt, .code = "not_served"}, Surface::kOllama);
}

}  // namespace

std::string without_latest(std::string name) {
  if (name.ends_with(str(kLatest))) name.resize(name.size() - kLatest.size());
  return name;
}

HttpReply ollama_version() { return json_reply({{"version", kSpokenVersion}}); }

HttpReply ollama_tags(const ModelAccess& models, Caller caller) {
  Json list = Json::array();
  for (const ModelRef& model : models.all(caller)) {
    list.push_back(entry(*model));
    list.back()["modified_at"] = rfc3339(model->created_unix_seconds);
  }
  return json_reply({{"models", std::move(list)}});
}

HttpReply ollama_ps(const ModelAccess& models, Caller caller) {
  const auto nodes = models.nodes();
  Json list = Json::array();
  for (const ModelRef& model : models.all(caller)) {
    const ModelTotals totals = totals_of(model->id, *nodes);
    if (totals.state != ModelState::kLoaded) continue;
    Json item = entry(*model);
    item["size_vram"] = totals.weight_bytes;
    item["context_length"] = context_limit(*model, *nodes);
    item["expires_at"] = rfc3339(unix_seconds() + 86'400);  // it goes when others need its place, not at an hour
    list.push_back(std::move(item));
  }
  return json_reply({{"models", std::move(list)}});
}

HttpReply ollama_show(std::string_view body, ModelAccess& models, Caller caller) {
  const auto name = parse_ollama_name(body);
  if (!name.ok()) return error_reply(name.error(), Surface::kOllama);
  const auto model = find(*name, models, caller);
  if (!model.ok()) return error_reply(model.error(), Surface::kOllama);
  const auto context = models.open((*model)->name, caller);
  if (!context.ok()) return error_reply(context.error(), Surface::kOllama);
  const ModelEntry& entry = **model;
  Json capabilities = Json::array({entry.pooled ? "embedding" : "completion"});
  if (!entry.pooled && context->text->chat_template != nullptr) capabilities.push_back("tools");
  if (!entry.pooled && context->text->format.reasoning != nullptr) capabilities.push_back("thinking");
  const auto info = parse_json(context->text->tokenizer_info);
  const bool templated = info.ok() && info->contains("chat_template") && (*info)["chat_template"].is_string();
  Json model_info = {{"general.architecture", entry.architecture}, {"general.parameter_count", entry.parameter_count},
                     {"general.basename", entry.name}, {entry.architecture + ".context_length", context->max_model_len},
                     {entry.architecture + ".vocab_size", entry.vocab_size}};
  return json_reply({{"modelfile", "# served by Shoal from its folder of models\n"}, {"parameters", parameters_text(entry.defaults)},
                     {"template", templated ? (*info)["chat_template"] : Json("")}, {"details", details(entry)}, {"model_info", std::move(model_info)},
                     {"capabilities", std::move(capabilities)}, {"modified_at", rfc3339(entry.created_unix_seconds)}});
}

HttpReply ollama_pull(std::string_view body, const ModelAccess& models, Caller caller) {
  const auto name = parse_ollama_name(body);
  if (!name.ok()) return error_reply(name.error(), Surface::kOllama);
  if (find(*name, models, caller).ok()) return {.content_type = "application/x-ndjson", .body = dump_json({{"status", "success"}}) + "\n"};
  return refused(501, "The model '" + *name + "' is not here, and this server fetches none: put its folder or GGUF file into the folder of models "
                      "that shoal serve was started with, then run shoal reload.");
}

HttpReply ollama_unserved(std::string_view what) {
  return refused(501, absl::StrCat(str(what), " is not served: models are the files in the folder that shoal serve was started with; change them there, then run shoal reload."));
}

}  // namespace shoal
