// The files of a model that deal in text, for a gateway that cannot read the model's folder.
#pragma once

#include <functional>
#include <string>

#include "base/status.h"

namespace shoal {

constexpr char kGgufTextFile[] = "model.gguf";  // stands for a GGUF file, with its metadata alone

// `path`: a model's folder or GGUF file. Gives each file to `emit`, named as in the folder; stops if that says no.
Status read_text_files(const std::string& path, const std::function<bool(const std::string& file, const std::string& bytes)>& emit);

// Adds a part to a file below `folder`. InvalidArgument for a name that leads out of it, and for more than a model has.
class TextFolder {
 public:
  explicit TextFolder(std::string folder) : folder_(std::move(folder)) {}
  Status add(const std::string& file, const std::string& bytes);
  // What load_model_text() takes.
  std::string model_path() const;

 private:
  const std::string folder_;
  size_t files_ = 0;
  uint64_t bytes_ = 0;
  std::string last_;
  bool gguf_ = false;
};

}  // namespace shoal
