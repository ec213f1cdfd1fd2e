// The names that models ask for tensors by, from those of a folder.
#pragma once

#include <optional>
#include <string>

#include "formats/model_config.h"

namespace shoal {

// The language model of a multimodal folder loses its prefix, and what a family calls its own way is called as others do.
// Nothing for tensors of the encoders around it.
std::optional<std::string> model_tensor_name(Architecture architecture, const std::string& name);

}  // namespace shoal
