#include "gateway/model_access.h"

#include <atomic>
#include <chrono>
#include <random>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/rng.h"
#include "gateway/openai_body.h"

namespace shoal {

int64_t unix_seconds() {
  return std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch()).count();
}

uint64_t random_bits() {
  std::random_device device;
  return (static_cast<uint64_t>(device()) << 32) ^ device();
}

ModelAccess::ModelAccess(const Admission& admission, Catalog& catalog, RouterLoop& loop)
    : admission_(admission), catalog_(catalog), loop_(loop), seeds_(random_bits()) {}

std::vector<ModelRef> ModelAccess::all(Caller caller) const {
  std::vector<ModelRef> visible = catalog_.models();
  std::erase_if(visible, [&](const ModelRef& model) { return !admission_.may_use(caller, *model); });
  return visible;
}

std::vector<std::string> ModelAccess::usable_names(Caller caller) const {
  std::vector<std::string> names;
  for (const ModelRef& model : all(caller)) {
    names.push_back(model->name);
    names.insert(names.end(), model->aliases.begin(), model->aliases.end());
  }
  return names;
}

ApiResult<ModelRef> ModelAccess::find(const std::string& name, Caller caller) const {
  ModelRef model = catalog_.find(name);
  if (const auto models = catalog_.models(); name.empty() && models.size() == 1) model = models.front();
  if (model == nullptr && name.empty()) return invalid_value("model", "'model' is missing, and there are several: name one of GET /v1/models.");
  if (model == nullptr) return model_not_found(name, usable_names(caller));
  if (!admission_.may_use(caller, *model)) return model_forbidden(name);
  return model;
}

ApiResult<PrepareContext> ModelAccess::open(const std::string& name, Caller caller) {
  auto model = find(name, caller);
  if (!model.ok()) return model.error();
  auto text = catalog_.text(**model);
  if (!text.ok()) {
    ApiError error = from_status(Status(StatusCode::kInternal, text.status().message()));
    error.message = absl::StrCat("The model '", name, "' cannot be used: ", text.status().message());
    return error;
  }
  return PrepareContext{.model = *model, .text = *std::move(text), .max_model_len = context_limit(**model, *loop_.snapshot()),
                        .fallback_seed = mix64(seeds_.fetch_add(1)), .now_unix_seconds = unix_seconds(), .grammars = &grammars_};
}

std::string mint_id() {
  static const uint64_t key = random_bits();
  static std::atomic<uint64_t> counter{0};
  const uint64_t count = counter.fetch_add(1);
  return absl::StrFormat("%016x%08x", counter_bits(key, 1, count), static_cast<uint32_t>(counter_bits(key, 2, count)));
}

}  // namespace shoal
