#include "gateway/surfaces/response_store.h"

namespace shoal {
namespace {

size_t shelf_of(Caller caller) { return caller.key.value_or(SIZE_MAX); }

// Values of JSON take about so many times the room of their text.
constexpr size_t kBytesPerTextByte = 3;

}  // namespace

void ResponseStore::drop(Shelf& shelf, std::list<Entry>::iterator entry) {
  shelf.bytes -= entry->bytes;
  shelf.by_id.erase(entry->response->id);
  shelf.entries.erase(entry);
}

void ResponseStore::put(Caller caller, StoredResponse response) {
  const size_t text = dump_json(response.body).size() + dump_json(response.input).size() + dump_ordered_json(response.messages).size();
  const size_t bytes = kBytesPerTextByte * text;
  if (bytes > bytes_max_) return;
  const auto held = std::make_shared<const StoredResponse>(std::move(response));
  std::lock_guard lock(mutex_);
  Shelf& shelf = shelves_[shelf_of(caller)];
  if (const auto same = shelf.by_id.find(held->id); same != shelf.by_id.end()) drop(shelf, same->second);
  shelf.entries.push_front({held, bytes});
  shelf.by_id[held->id] = shelf.entries.begin();
  shelf.bytes += bytes;
  while (shelf.bytes > bytes_max_ || shelf.entries.size() > kEntriesMax) drop(shelf, std::prev(shelf.entries.end()));
}

std::shared_ptr<const StoredResponse> ResponseStore::find(Caller caller, const std::string& id) {
  std::lock_guard lock(mutex_);
  const auto shelf = shelves_.find(shelf_of(caller));
  if (shelf == shelves_.end()) return nullptr;
  const auto entry = shelf->second.by_id.find(id);
  return entry == shelf->second.by_id.end() ? nullptr : entry->second->response;
}

bool ResponseStore::erase(Caller caller, const std::string& id) {
  std::lock_guard lock(mutex_);
  Shelf& shelf = shelves_[shelf_of(caller)];
  const auto entry = shelf.by_id.find(id);
  if (entry == shelf.by_id.end()) return false;
  drop(shelf, entry->second);
  return true;
}

}  // namespace shoal
