// Template source -> tokens, with the white-space rules of trim_blocks and lstrip_blocks.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace shoal::jinja {

enum class TokenKind : uint8_t {
  kData,           // text between tags
  kVariableBegin,  // {{
  kVariableEnd,
  kBlockBegin,     // {%
  kBlockEnd,
  kName,
  kString,         // text holds the value, escapes decoded
  kInteger,
  kFloat,
  kOperator,       // text holds it: + - ** // == ( [ { and so on
  kEnd,
};

struct Token {
  TokenKind kind;
  uint32_t line;
  std::string text;
};

// Throws Fault with the line of what cannot be read. The last token is kEnd.
std::vector<Token> tokenize(std::string_view source);

}  // namespace shoal::jinja
