// The part of a tokenizer that turns one piece of text into ids.
#pragma once

#include <string_view>
#include <vector>

#include "base/ids.h"

namespace shoal {

// Immutable to its callers; may be used from any thread.
class TokenModel {
 public:
  virtual ~TokenModel() = default;
  // Appends the ids of `piece` (not empty; well-formed UTF-8, or any bytes if the model was built for raw bytes).
  virtual void encode(std::string_view piece, std::vector<TokenId>& out) const = 0;
};

}  // namespace shoal
