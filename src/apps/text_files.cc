#include "apps/text_files.h"

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "base/json.h"
#include "formats/gguf_file.h"

namespace shoal {
namespace {

namespace fs = std::filesystem;
constexpr size_t kFileBytesMax = 64u << 20, kFilesMax = 64;
constexpr uint64_t kBytesMax = 256u << 20;

bool deals_in_text(const fs::path& file) {
  const std::string name = file.filename().string();
  if (name.ends_with(".index.json")) return false;
  return file.extension() == ".json" || file.extension() == ".jinja" || file.extension() == ".txt" || file.extension() == ".model";
}

}  // namespace

Status read_text_files(const std::string& path, const std::function<bool(const std::string& file, const std::string& bytes)>& emit) {
  if (fs::path(path).extension() == ".gguf") {
    ASSIGN_OR_RETURN(const std::string bytes, gguf_without_tensors(path));
    emit(kGgufTextFile, bytes);
    return OkStatus();
  }
  std::error_code error;
  std::vector<fs::path> files;
  for (auto it = fs::recursive_directory_iterator(path, error); !error && it != fs::recursive_directory_iterator(); it.increment(error)) {
    if (it.depth() > 1) it.disable_recursion_pending();
    std::error_code ignored;
    if (it->is_regular_file(ignored) && deals_in_text(it->path()) && it->file_size(ignored) <= kFileBytesMax && files.size() < kFilesMax) files.push_back(it->path());
  }
  if (error) return unavailable(path, ": ", error.message());
  std::sort(files.begin(), files.end());
  for (const fs::path& file : files) {
    ASSIGN_OR_RETURN(const std::string bytes, read_file(file.string(), kFileBytesMax));
    if (!emit(fs::relative(file, path).string(), bytes)) break;
  }
  return OkStatus();
}

Status TextFolder::add(const std::string& file, const std::string& bytes) {
  const fs::path name(file);
  const bool inside = !name.empty() && name.is_relative() && std::none_of(name.begin(), name.end(), [](const fs::path& part) { return part == ".." || part.empty(); });
  if (!inside || file.find('\0') != std::string::npos) return invalid_argument("a file named '", file, "' is none of a model's");
  const bool begins = file != last_;
  files_ += begins;
  bytes_ += bytes.size();
  if (files_ > kFilesMax || bytes_ > kBytesMax) return resource_exhausted("the model's text is more than ", kBytesMax, " bytes in ", kFilesMax, " files");
  last_ = file;
  gguf_ |= file == kGgufTextFile;
  const fs::path target = fs::path(folder_) / name;
  std::error_code error;
  fs::create_directories(target.parent_path(), error);
  std::ofstream out(target, begins ? std::ios::binary | std::ios::trunc : std::ios::binary | std::ios::app);
  out.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  out.flush();
  return out ? OkStatus() : unavailable(target.string(), " cannot be written: is the disk full?");
}

std::string TextFolder::model_path() const { return gguf_ ? (fs::path(folder_) / kGgufTextFile).string() : folder_; }

}  // namespace shoal
