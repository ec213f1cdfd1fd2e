// The responses that clients may refer to by id: of each API key the most recent ones, within a bound.
#pragma once

#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>

#include "base/json.h"
#include "gateway/admission.h"
#include "nlohmann/json.hpp"

namespace shoal {

struct StoredResponse {
  std::string id;
  Json body;               // as it was answered
  Json input;              // the items that were asked with, of this turn alone
  OrderedJson messages;    // the conversation up to and with this answer, without instructions, as ChatPrompt::messages
};

// All methods may be called from any thread.
class ResponseStore {
 public:
  // bytes_max: for each key, and for all callers together where no keys are asked for; 0: nothing is kept.
  explicit ResponseStore(size_t bytes_max) : bytes_max_(bytes_max) {}

  bool keeps() const { return bytes_max_ > 0; }
  // The oldest of the same caller make room; what is larger than the bound is not kept.
  void put(Caller caller, StoredResponse response);
  // Null: never there, gone by now, or another key's.
  std::shared_ptr<const StoredResponse> find(Caller caller, const std::string& id);
  bool erase(Caller caller, const std::string& id);

 private:
  static constexpr size_t kEntriesMax = 4096;  // for each key
  struct Entry {
    std::shared_ptr<const StoredResponse> response;
    size_t bytes;
  };
  struct Shelf {
    std::list<Entry> entries;  // the newest first
    std::unordered_map<std::string, std::list<Entry>::iterator> by_id;
    size_t bytes = 0;
  };
  static void drop(Shelf& shelf, std::list<Entry>::iterator entry);

  const size_t bytes_max_;
  std::mutex mutex_;
  std::unordered_map<size_t, Shelf> shelves_;  // by key, SIZE_MAX where no keys are asked for; guarded by mutex_
};

}  // namespace shoal
