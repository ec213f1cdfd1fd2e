// Serves a directory in memory to the other processes of a machine, in the words of etcd, so that there is one client for both.
#pragma once

#include <memory>
#include <string>

#include "base/status.h"
#include "membership/directory_store.h"

namespace shoal {

class DirectoryServer {
 public:
  // `address`: "unix:PATH" (the socket is its user's alone; one that nobody serves any more is taken over), or "HOST:PORT".
  // The directory outlives the server. AlreadyExists if somebody else serves there.
  static StatusOr<std::unique_ptr<DirectoryServer>> start(const std::string& address, MemoryDirectory& directory);
  virtual ~DirectoryServer() = default;  // watches end
};

}  // namespace shoal
