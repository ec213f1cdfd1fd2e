// A folder of models as a process serves it: found, with their settings, and read again while it runs.
#pragma once

#include <functional>
#include <vector>

#include "apps/local_nodes.h"
#include "apps/serve_flags.h"

namespace shoal {

// Once, before anything else: the file's settings of models, the log, what does not go together.
Status settle(ServeFlags& flags);

// The models of the flags' path, with aliases, parsers and settings. What cannot be served is logged with its reason.
StatusOr<std::vector<FoundModel>> models_to_serve(const ServeFlags& flags);

struct ReloadParts {
  Catalog& catalog;
  std::function<ModelChanges(std::vector<FoundModel>)> update;
  std::function<void(ModelId)> load;  // a new one that is to be loaded at once
};
// Reads the file and the folder again. A fault in either changes nothing. `add`: the flags of the verb.
StatusOr<Json> reload_folder(ServeFlags& flags, const AddFlags& add, const ReloadParts& parts);

}  // namespace shoal
