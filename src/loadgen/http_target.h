// Where a server is: a URL taken apart.
#pragma once

#include <string>
#include <string_view>

#include "base/status.h"

namespace shoal {

struct HttpTarget {
  bool tls = false;
  std::string host;         // a name or an address, IPv6 without brackets
  std::string port;
  std::string unix_socket;  // a path: connects there, whatever host and port say
  std::string base_path;    // "" or "/prefix", put in front of every path: where /v1 and its neighbours (/tokenize, /metrics) are
  bool names_v1 = false;    // the URL ended in /v1, which is not in base_path

  std::string host_header() const;
  std::string shown() const;  // for people
};

// "http://host[:port][/prefix][/v1]", "https://...", "host:port", or "unix:/path/to/socket". Clients are told base URLs with and
// without /v1: it means the same. InvalidArgument says what is wrong.
StatusOr<HttpTarget> parse_url(std::string_view url);

}  // namespace shoal
