// What a node tells gateways of a model it serves: everything of ModelEntry that is not this process's own, as JSON.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "gateway/catalog.h"

namespace shoal {

struct ModelCard {
  ModelEntry entry;    // its id is nobody's; its path is on the node's machine
  uint64_t stamp = 0;  // of its ModelDigest
};

std::string write_cards(const std::vector<ModelCard>& cards);
// InvalidArgument with the model and the field for what write_cards() does not write.
StatusOr<std::vector<ModelCard>> read_cards(std::string_view text);

}  // namespace shoal
