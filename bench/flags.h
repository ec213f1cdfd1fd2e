// What the flags of programs in this folder share.
#pragma once

#include <map>
#include <string>

#include "CLI/CLI.hpp"
#include "models/model.h"

namespace shoal {

inline CLI::CheckedTransformer quantizations() {
  return CLI::CheckedTransformer(std::map<std::string, Quantization>{{"none", Quantization::kNone}, {"q8_0", Quantization::kQ8_0}, {"q4_0", Quantization::kQ4_0}});
}

}  // namespace shoal
