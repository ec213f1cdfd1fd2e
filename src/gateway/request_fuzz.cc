// Every request body from arbitrary bytes: a value or an error, never anything else.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "gateway/openai_request.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view body(reinterpret_cast<const char*>(data), size);
  const shoal::RequestLimits limits;
  (void)shoal::parse_chat_request(body, limits);
  (void)shoal::parse_completion_request(body, limits);
  (void)shoal::parse_tokenize_request(body, limits);
  (void)shoal::parse_detokenize_request(body);
  return 0;
}
