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
  std::string base_path;    // "" or "/prefix", put in front of every path

  std::string host_header() const;
  std::string shown() const;  // for people
};

// "http://host[:port][/prefix]", "https://...", "host:port", or "unix:/path/to/socket". InvalidArgument says what is wrong.
StatusOr<HttpTarget> parse_url(std::string_view url);

// The prefix and the path, without saying "/v1" twice: clients are told base URLs with and without it.
std::string join_path(const HttpTarget& target, std::string_view path);

}  // namespace shoal
