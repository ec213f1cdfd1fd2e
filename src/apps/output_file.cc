#include "apps/output_file.h"

#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <system_error>

namespace shoal {
namespace {

Status cannot_write(std::string_view where, int error) {
  return unavailable(std::string(where), ": cannot be written: ", std::generic_category().message(error));
}

}  // namespace

Status check_output(std::string_view flag, const std::filesystem::path& path) {
  if (path.empty()) return OkStatus();
  const std::string where = std::string(flag) + " " + path.string();
  const std::filesystem::path folder = path.has_parent_path() ? path.parent_path() : ".";
  std::error_code error;
  if (!std::filesystem::exists(folder, error)) {
    return not_found(where, ": there is no folder ", folder.string(), "; create it (mkdir -p ", folder.string(), ") or name another");
  }
  if (!std::filesystem::is_directory(folder, error)) return invalid_argument(where, ": ", folder.string(), " is no folder");
  if (std::filesystem::is_directory(path, error)) return invalid_argument(where, ": is a folder; name a file in it");
  const std::filesystem::path& touched = std::filesystem::exists(path, error) ? path : folder;
  return access(touched.c_str(), W_OK) == 0 ? OkStatus() : cannot_write(where, errno);
}

Status write_output(const std::filesystem::path& path, std::string_view text) {
  errno = 0;
  std::ofstream file(path, std::ios::binary);
  file << text;
  file.close();
  return file ? OkStatus() : cannot_write(path.string(), errno != 0 ? errno : EIO);
}

}  // namespace shoal
