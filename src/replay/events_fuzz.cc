#include "replay/fuzz_targets.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  shoal::fuzz::events({reinterpret_cast<const char*>(data), size});
  return 0;
}
