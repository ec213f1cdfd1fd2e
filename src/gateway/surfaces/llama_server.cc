#include "gateway/surfaces/llama_server.h"

#include "gateway/model_totals.h"
#include "gateway/openai_body.h"
#include "nlohmann/json.hpp"

namespace shoal {
namespace {

std::string variable(const ModelText& text, const char* name) {
  const auto found = text.template_variables.find(name);
  return found == text.template_variables.end() ? "" : found->second;
}

}  // namespace

HttpReply llama_props(const std::string& model, ModelAccess& models, Caller caller) {
  const auto context = models.open(model, caller);
  if (!context.ok()) return error_reply(context.error(), Surface::kLlamaCpp);
  const ModelText& text = *context->text;
  const GenerationDefaults& defaults = context->model->defaults;
  const auto info = parse_json(text.tokenizer_info);
  const bool templated = info.ok() && info->contains("chat_template") && (*info)["chat_template"].is_string();
  const Json params = {{"temperature", defaults.temperature.value_or(1.0f)}, {"top_k", defaults.top_k.value_or(0)}, {"top_p", defaults.top_p.value_or(1.0f)},
                       {"min_p", defaults.min_p.value_or(0.0f)}, {"n_predict", -1}};
  return json_reply({{"default_generation_settings", {{"n_ctx", context->max_model_len}, {"params", params}}},
                     {"total_slots", 1}, {"model_alias", context->model->name}, {"model_path", context->model->name},
                     {"chat_template", templated ? (*info)["chat_template"] : Json("")},
                     {"bos_token", variable(text, "bos_token")}, {"eos_token", variable(text, "eos_token")},
                     {"modalities", {{"vision", false}, {"audio", false}}}, {"build_info", "shoal"}, {"is_sleeping", false}});
}

HttpReply llama_slots(const std::string& model, const ModelAccess& models, Caller caller) {
  std::vector<ModelRef> wanted = models.all(caller);
  if (!model.empty()) {
    const auto one = models.find(model, caller);
    if (!one.ok()) return error_reply(one.error(), Surface::kLlamaCpp);
    wanted = {*one};
  }
  const auto nodes = models.nodes();
  Json slots = Json::array();
  for (const ModelRef& entry : wanted) {
    const uint32_t busy = totals_of(entry->id, *nodes).running;
    for (uint32_t i = 0; i <= busy; ++i) {
      slots.push_back({{"id", slots.size()}, {"model", entry->name}, {"n_ctx", context_limit(*entry, *nodes)}, {"is_processing", i < busy}});
    }
  }
  return json_reply(slots);
}

}  // namespace shoal
