// What the flags of programs in this folder share.
#pragma once

#include <map>
#include <string>

#include "CLI/CLI.hpp"
#include "models/model.h"

namespace shoal {

// A flag that names one of the choices. `value` outlives the parsing.
template <typename T>
void add_choice(CLI::App& app, const std::string& flag, T& value, const std::string& what, const std::map<std::string, T>& choices) {
  app.add_option_function<std::string>(flag, [&value, choices](const std::string& name) { value = choices.at(name); }, what)->check(CLI::IsMember(choices));
}

inline void add_quantization(CLI::App& app, Quantization& value) {
  add_choice(app, "--quantization", value, "What the weights become", {{"none", Quantization::kNone}, {"q8_0", Quantization::kQ8_0}, {"q4_0", Quantization::kQ4_0}});
}

}  // namespace shoal
