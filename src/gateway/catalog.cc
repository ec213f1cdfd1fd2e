#include "gateway/catalog.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace shoal {

Catalog::Catalog(std::vector<ModelEntry> models, TextLoader loader, size_t texts_max)
    : loader_(std::move(loader)), texts_max_(std::max<size_t>(texts_max, 1)), view_(view_of(std::move(models))) {}

std::shared_ptr<const Catalog::View> Catalog::view_of(std::vector<ModelEntry> models) {
  auto view = std::make_shared<View>();
  for (ModelEntry& entry : models) {
    const auto model = std::make_shared<const ModelEntry>(std::move(entry));
    CHECK(view->by_id.emplace(model->id, model).second);
    CHECK(view->by_name.emplace(model->name, model).second);
    for (const std::string& alias : model->aliases) CHECK(view->by_name.emplace(alias, model).second);
    view->models.push_back(model);
  }
  return view;
}

std::shared_ptr<const Catalog::View> Catalog::view() const {
  std::lock_guard lock(mutex_);
  return view_;
}

std::vector<ModelRef> Catalog::models() const { return view()->models; }

ModelRef Catalog::find(std::string_view name_or_alias) const {
  const auto now = view();
  const auto it = now->by_name.find(name_or_alias);
  return it == now->by_name.end() ? nullptr : it->second;
}

ModelRef Catalog::find(ModelId id) const {
  const auto now = view();
  const auto it = now->by_id.find(id);
  return it == now->by_id.end() ? nullptr : it->second;
}

void Catalog::replace(std::vector<ModelEntry> models) {
  auto next = view_of(std::move(models));
  std::lock_guard lock(mutex_);
  view_ = std::move(next);
  const auto gone = [this](ModelId id) { return !view_->by_id.contains(id); };
  std::erase_if(slots_, [&](const auto& slot) { return gone(slot.first); });
  std::erase_if(recent_, gone);
}

std::shared_ptr<Catalog::Slot> Catalog::slot(ModelId id) {
  std::lock_guard lock(mutex_);
  std::shared_ptr<Slot>& slot = slots_[id];
  if (slot == nullptr) slot = std::make_shared<Slot>();
  return slot;
}

StatusOr<std::shared_ptr<const ModelText>> Catalog::text(const ModelEntry& model) {
  const std::shared_ptr<Slot> own = slot(model.id);
  const auto loaded = [&]() -> std::shared_ptr<const ModelText> {
    std::lock_guard lock(mutex_);
    if (own->text) {
      recent_.remove(model.id);
      recent_.push_front(model.id);
    }
    return own->text;
  };
  if (auto text = loaded()) return text;
  std::lock_guard one_loader(own->loading);
  if (auto text = loaded()) return text;
  ASSIGN_OR_RETURN(std::shared_ptr<const ModelText> text, loader_(model));
  std::lock_guard lock(mutex_);
  own->text = text;
  recent_.push_front(model.id);
  if (recent_.size() > texts_max_) {
    const auto oldest = slots_.find(recent_.back());
    if (oldest != slots_.end()) oldest->second->text.reset();
    recent_.pop_back();
  }
  return text;
}

}  // namespace shoal
