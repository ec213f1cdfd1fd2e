#include "text/tokenizer/fuzz_targets.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const auto tokenizer = shoal::fuzz::byte_fallback_tokenizer();
  shoal::fuzz::detokenizer(*tokenizer, {reinterpret_cast<const char*>(data), size});
  return 0;
}
