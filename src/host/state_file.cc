#include "host/state_file.h"

#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <system_error>

#include "absl/strings/str_cat.h"

namespace shoal {
namespace {

std::error_code write(const std::filesystem::path& path, const std::string& text) {
  errno = 0;
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file << text;
  file.close();
  return file ? std::error_code() : std::error_code(errno != 0 ? errno : EIO, std::generic_category());
}

}  // namespace

Status replace_file(const std::string& path_text, const std::string& text) {
  const std::filesystem::path path(path_text), fresh(absl::StrCat(path_text, ".", getpid()));
  std::error_code error;
  if (std::filesystem::is_other(path, error)) return unavailable("it is neither a file nor a folder");  // a device would be gone
  error.clear();
  if (path.has_parent_path()) std::filesystem::create_directories(path.parent_path(), error);
  if (!error) error = write(fresh, text);
  if (!error) std::filesystem::rename(fresh, path, error);
  if (!error) return OkStatus();
  std::error_code ignored;
  std::filesystem::remove(fresh, ignored);
  return unavailable(error.message());
}

}  // namespace shoal
