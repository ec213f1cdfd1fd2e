#include "apps/admin_socket.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "absl/strings/str_cat.h"

namespace shoal {

std::string default_admin_socket(uint16_t port) {
  const char* runtime = std::getenv("XDG_RUNTIME_DIR");
  const std::string base = runtime != nullptr && runtime[0] == '/' ? runtime : "/tmp";
  return absl::StrCat(base, "/shoal-", getuid(), "/", port, ".sock");
}

Status make_admin_socket_folder(const std::string& socket) {
  const std::string folder = std::filesystem::path(socket).parent_path().string();
  if (mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST) {
    return unavailable("cannot make ", folder, ": ", std::strerror(errno), "; choose another --admin-socket, or none");
  }
  struct stat info {};
  if (lstat(folder.c_str(), &info) != 0 || !S_ISDIR(info.st_mode) || info.st_uid != getuid() || (info.st_mode & 0077) != 0) {
    return unavailable(folder, ": is not a folder of this user alone; remove it or choose another --admin-socket");
  }
  return OkStatus();
}

}  // namespace shoal
