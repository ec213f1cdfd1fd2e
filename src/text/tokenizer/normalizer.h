// What happens to text before it is cut into pieces: the "normalizer" of tokenizer.json.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/status.h"
#include "text/tokenizer/marked_text.h"

namespace shoal {

// Immutable; may be used from any thread.
class Normalizer {
 public:
  virtual ~Normalizer() = default;
  // Rewrites `text` (well-formed UTF-8); what it writes carries the marks of what it read.
  virtual void apply(MarkedText& text) const = 0;
  // Every byte that it writes stands for at most so many bytes of what it read. 0: for any number, it may drop text.
  virtual size_t shrink_max() const = 0;
};

// `config` is the JSON component. Unimplemented for a type that is not known, InvalidArgument for a malformed one.
StatusOr<std::unique_ptr<Normalizer>> make_normalizer(const Json& config, int depth = 0);

// The normalizers that GGUF vocabularies imply.
std::unique_ptr<Normalizer> make_prepend_normalizer(std::string prefix);
std::unique_ptr<Normalizer> make_replace_normalizer(std::string from, std::string to);
std::unique_ptr<Normalizer> make_normalizer_sequence(std::vector<std::unique_ptr<Normalizer>> steps);
StatusOr<std::unique_ptr<Normalizer>> make_charsmap_normalizer(std::string_view blob);
// No space at the ends, one where there were several.
StatusOr<std::unique_ptr<Normalizer>> make_space_collapsing_normalizer();

}  // namespace shoal
