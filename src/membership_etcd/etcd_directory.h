// A directory in etcd, or in whatever speaks its API: membership_etcd/directory_server.h does.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/tls_identity.h"
#include "membership/directory.h"

namespace shoal {

// Where it is, as --join says it.
struct DirectoryAddress {
  std::vector<std::string> endpoints;  // "HOST:PORT", or "unix:PATH"
  std::string user, password;          // empty: no authentication
  bool tls = false;
  friend bool operator==(const DirectoryAddress&, const DirectoryAddress&) = default;
};
// "etcd://[USER:PASSWORD@]HOST:PORT[,HOST:PORT...]", "etcds://..." with TLS, or "unix:PATH". InvalidArgument says what is wrong.
StatusOr<DirectoryAddress> parse_directory_address(const std::string& text);

// Nothing is connected yet: endpoints are tried in turn, and the next one when one does not answer.
std::unique_ptr<Directory> open_directory(const DirectoryAddress& address, const TlsIdentity& tls);

}  // namespace shoal
