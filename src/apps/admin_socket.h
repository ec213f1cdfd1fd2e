// Where a server of this user listens for its operator, and where `ps`, `load`, `unload` and `stop` look for it.
#pragma once

#include <cstdint>
#include <string>

#include "base/status.h"

namespace shoal {

// ${XDG_RUNTIME_DIR:-/tmp}/shoal-UID/PORT.sock
std::string default_admin_socket(uint16_t port);

// Makes the socket's folder, for this user alone. Unavailable if somebody else's folder is in its place.
Status make_admin_socket_folder(const std::string& socket);

}  // namespace shoal
