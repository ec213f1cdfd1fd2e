// The page that reports are: styles inline, no script, nothing fetched; light and dark.
#pragma once

#include <string>

namespace shoal {

std::string html_page(const std::string& title, const std::string& body);
// A framed box with a heading; `content` is HTML.
std::string card(const std::string& title, const std::string& content);
// A figure with its name; `value` is HTML.
std::string tile(const std::string& value, const std::string& name, bool bad = false);
// Three digits or so.
std::string number(double value);

}  // namespace shoal
