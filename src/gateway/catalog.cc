#include "gateway/catalog.h"

#include <algorithm>

#include "base/check.h"

namespace shoal {

Catalog::Catalog(std::vector<ModelEntry> models, TextLoader loader, size_t texts_max)
    : models_(std::move(models)), loader_(std::move(loader)), texts_max_(std::max<size_t>(texts_max, 1)) {
  for (size_t i = 0; i < models_.size(); ++i) {
    CHECK(by_name_.emplace(models_[i].name, i).second);
    for (const std::string& alias : models_[i].aliases) CHECK(by_name_.emplace(alias, i).second);
    slots_.push_back(std::make_unique<Slot>());
  }
}

const ModelEntry* Catalog::find(std::string_view name_or_alias) const {
  const auto it = by_name_.find(name_or_alias);
  return it == by_name_.end() ? nullptr : &models_[it->second];
}

StatusOr<std::shared_ptr<const ModelText>> Catalog::text(const ModelEntry& model) {
  const size_t index = static_cast<size_t>(&model - models_.data());
  CHECK_LT(index, models_.size());
  Slot& slot = *slots_[index];
  const auto loaded = [&]() -> std::shared_ptr<const ModelText> {
    std::lock_guard lock(mutex_);
    if (slot.text) {
      recent_.remove(index);
      recent_.push_front(index);
    }
    return slot.text;
  };
  if (auto text = loaded()) return text;
  std::lock_guard one_loader(slot.loading);
  if (auto text = loaded()) return text;
  ASSIGN_OR_RETURN(std::shared_ptr<const ModelText> text, loader_(model));
  std::lock_guard lock(mutex_);
  slot.text = text;
  recent_.push_front(index);
  if (recent_.size() > texts_max_) {
    slots_[recent_.back()]->text.reset();
    recent_.pop_back();
  }
  return text;
}

}  // namespace shoal
