#include "text/grammar/fuzz_targets.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const auto vocabulary = shoal::fuzz::grammar_vocabulary();
  shoal::fuzz::gbnf(vocabulary, {reinterpret_cast<const char*>(data), size});
  return 0;
}
