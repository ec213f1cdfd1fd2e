// One event of an OpenAI stream, read without building a JSON tree: a load generator reads hundreds of thousands of these
// a second, and needs five facts of each.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/status.h"

namespace shoal {

struct Chunk {
  bool has_token = false;           // text, reasoning or a tool call; or a completion's empty text before its end
  std::string text;                 // unescaped; filled only if asked for
  std::optional<uint32_t> prompt_tokens;      // of `usage`
  std::optional<uint32_t> completion_tokens;
  std::string finish_reason;        // "" while null or absent
  std::optional<std::string> error; // `error.message`, or the error as it is written
};

// A chat or completion chunk, or a whole answer that was not streamed. InvalidArgument: not JSON, or nested too deep.
StatusOr<Chunk> read_chunk(std::string_view json, bool want_text);

}  // namespace shoal
