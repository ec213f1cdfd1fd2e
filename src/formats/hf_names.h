// The names that models ask for tensors by, from those of a folder, and back.
#pragma once

#include <optional>
#include <string>

#include "formats/model_config.h"

namespace shoal {

// The language model of a multimodal folder loses its prefix, and what a family calls its own way is called as others do.
// Nothing for tensors of the encoders around it.
std::optional<std::string> model_tensor_name(Architecture architecture, const std::string& name);

// What a folder calls a tensor that models ask for by `name`, or would call it if it were there; `outer` is what stands before "layers."
// in its names. For errors: where a family has two names for one thing, it is the family's own.
std::string folder_tensor_name(Architecture architecture, const std::string& name, const std::string& outer);

}  // namespace shoal
