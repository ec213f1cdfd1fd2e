// Which models a message is about, by names that hold in every process. Within a process a model is a number (ModelId), the same for
// all of its roles. What crosses has its sender's numbers, and says beside them which models those are; whoever it comes to puts its
// own numbers there before a role sees it.
#pragma once

#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "base/status.h"
#include "wire/message.h"

namespace shoal {

struct ModelName {
  std::string name;
  uint64_t stamp = 0;  // of its ModelDigest; 0: who says the name has no files of it
  friend bool operator==(const ModelName&, const ModelName&) = default;
};

// The models of this process. A number stays with its model for ever: messages of before may still be on their way. Thread-safe.
class ModelNames {
 public:
  void add(ModelId id, ModelName name);
  std::optional<ModelName> find(ModelId id) const;
  // The number, in this process, of the model that is `theirs` in another. NotFound: nothing has that name. FailedPrecondition: what has
  // it has other files, or is loaded differently; says both digests, and what to do.
  StatusOr<ModelId> here(ModelId theirs, const ModelName& name) const;

 private:
  mutable std::mutex mutex_;
  std::map<ModelId, ModelName> models_;
  std::map<std::string, std::vector<ModelId>, std::less<>> by_name_;  // the latest last
};

// A message as it came, in numbers of this process.
struct Arrival {
  Message message;
  uint32_t life = 0;  // of the sender
  // Why a model that the message is about is none of this process's. The message then means nothing, but for a report of several
  // models: those are left out of it. Empty: all is known, or a report had models that nothing here is named like.
  std::string unknown_model;
};

// As encode() and decode(), between processes that number their models differently. A message that names none is of this process.
std::string encode(const Message& message, uint32_t life, const ModelNames& names);
StatusOr<Arrival> decode(std::string_view bytes, const ModelNames& names);

}  // namespace shoal
