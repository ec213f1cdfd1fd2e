#include "slots/fuzz_targets.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  shoal::fuzz_slots({reinterpret_cast<const std::byte*>(data), size});
  return 0;
}
