// The reversible mapping of bytes to printable characters that byte-level BPE vocabularies are written in (GPT-2).
#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>

namespace shoal::byte_level {

// Printable Latin-1 bytes stand for themselves, the other 68 for U+0100 and up in ascending order (space is U+0120).
const std::array<char32_t, 256>& chars();

std::string from_bytes(std::string_view bytes);
// The bytes that a vocabulary spelling stands for; nothing if it holds a character outside of the mapping.
std::optional<std::string> to_bytes(std::string_view spelling);

// The pieces that GPT-2 cuts text into before it merges.
extern const char* const kGpt2Regex;

}  // namespace shoal::byte_level
