// The part of a tokenizer that turns one piece of text into ids.
#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

#include "base/ids.h"

namespace shoal {

// Immutable to its callers; may be used from any thread.
class TokenModel {
 public:
  virtual ~TokenModel() = default;
  // Appends the ids of `piece` (not empty; well-formed UTF-8, or any bytes if the model was built for raw bytes). May stop
  // once `out` holds more than `tokens_max`.
  virtual void encode(std::string_view piece, size_t tokens_max, std::vector<TokenId>& out) const = 0;
  // No id stands for more bytes of a piece. 0: there is no such bound, because unknown symbols vanish or become one.
  virtual size_t token_bytes_max() const = 0;
};

}  // namespace shoal
